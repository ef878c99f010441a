# `make demo` and `make test` install what they need; Python 3.11 or newer and make are enough.
#   PYTHON=python3.12 make test                     another interpreter
#   PIP_FLAGS='--index-url ...' make demo           another package index
#   WORKERS=8 make test                             more test processes

PYTHON ?= python3
PIP_FLAGS ?=
WORKERS ?= 2

BIN := .venv/bin
INSTALLED := .venv/.installed

# Nothing opens a window.
export MPLBACKEND ?= Agg

.DEFAULT_GOAL := help
.PHONY: help setup demo serve dashboard test lint format docs notebooks bench clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED) ## create .venv and install the package with its pinned dependencies

demo: $(INSTALLED) ## backtest SDPO and PPO through the crash of 2020, in one to three minutes
	$(BIN)/portfolio-sdpo demo

dashboard: $(INSTALLED) ## show weights, backtests and training on http://127.0.0.1:8501
	$(BIN)/portfolio-sdpo dashboard

serve: $(INSTALLED) ## serve the champion's weights on http://127.0.0.1:8000/api/v1
	$(BIN)/portfolio-sdpo serve

# One thread per worker, so that workers do not compete for the cores.
test: lint ## lint, types, import order and all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

lint: $(INSTALLED) ## ruff, mypy and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED) ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED) ## write docs/api from the docstrings
	$(BIN)/python docs/make_api.py

notebooks: $(INSTALLED) ## run the notebooks, store their outputs and their pages in docs/notebooks
	$(BIN)/python docs/make_notebooks.py

bench: $(INSTALLED) ## run every benchmark; each prints one JSON object
	@set -e; for file in benchmarks/*.py; do echo "# $$file" >&2; $(BIN)/python $$file; done

clean: ## remove .venv, caches and build products
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Safety-Gymnasium pins versions of years ago, so it comes without its dependencies: the extra [safety] has them.
# A half-made environment (an interrupted first run) has no working pip yet and is made again.
$(INSTALLED): pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=/path/to/python.")'
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt --no-deps safety-gymnasium
	@touch $@
