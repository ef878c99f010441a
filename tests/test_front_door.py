"""`import portfolio_sdpo`: the names that people need, each imported when it is first used."""

import inspect
import subprocess
import sys

import gymnasium
import pytest

import portfolio_sdpo
import portfolio_sdpo.report.backtest
from portfolio_sdpo.common.environments import ENTRY_POINTS

HEAVY = {"numpy", "pandas", "torch", "gymnasium", "pydantic", "typing"}


def run(script: str) -> str:
    """In a fresh interpreter without site-packages' start-up files, which import this and that."""
    paths = [path for path in sys.path if path]
    code = f"import sys; sys.path[:] = {paths!r}\n{script}"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_it_imports_nothing_heavy():
    found = run("import portfolio_sdpo; print(*sorted(set(sys.modules)))")
    assert not HEAVY & set(found.split())
    assert [name for name in found.split() if name.startswith("portfolio_sdpo.")] == [
        "portfolio_sdpo.common",
        "portfolio_sdpo.common.environments",
    ]


@pytest.mark.parametrize("name", sorted(portfolio_sdpo._HOMES))
def test_every_name_is_there_and_the_same_as_in_its_room(name):
    value = getattr(portfolio_sdpo, name)
    assert name in dir(portfolio_sdpo) and value is getattr(sys.modules[portfolio_sdpo._HOMES[name]], name)


NAMES = """
from portfolio_sdpo import backtest as before
from portfolio_sdpo.backtest.simulate import simulate
from portfolio_sdpo import backtest as after
import portfolio_sdpo.backtest.run as run
assert before is after is sys.modules["portfolio_sdpo.backtest"] and callable(after) and run.Entry
print("ok")
"""


def test_the_room_of_backtests_can_be_called_whoever_imported_it_first():
    assert run(NAMES) == "ok"
    assert run(NAMES.partition("\n")[2].partition("\n")[2].replace("before is ", "")) == "ok"


def test_the_headline_names():
    assert 8 <= len(portfolio_sdpo.__all__) <= 13 and set(portfolio_sdpo.__all__) <= set(dir(portfolio_sdpo))
    with pytest.raises(AttributeError, match="module 'portfolio_sdpo' has no attribute 'SafeAlocator'"):
        portfolio_sdpo.SafeAlocator  # noqa: B018
    with pytest.raises(ImportError):
        from portfolio_sdpo import SafeAlocator  # noqa: F401


@pytest.mark.parametrize("name", portfolio_sdpo.__all__)
def test_headline_names_explain_themselves(name):
    value = portfolio_sdpo.report.backtest.backtest if name == "backtest" else getattr(portfolio_sdpo, name)
    text = inspect.getdoc(value)
    assert text and ">>> " in text
    if name in ("SafeAllocator", "load_prices", "backtest"):
        for part in ("Parameters\n----------", "Examples\n--------", ">>> "):
            assert part in text, part


ORDERS = {
    "gymnasium first": "import gymnasium, portfolio_sdpo",
    "gymnasium last": "import portfolio_sdpo, gymnasium",
    "looked for first": "import portfolio_sdpo, importlib.util as i; i.find_spec('gymnasium'); import gymnasium",
    "by another package": "import portfolio_sdpo, gymnasium.spaces; import gymnasium",
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_environments_are_registered_by_importing_it(order):
    finders = "print(sum(type(finder).__module__.startswith('portfolio_sdpo') for finder in sys.meta_path))"
    env = (
        "env = gymnasium.make('portfolio_sdpo/RandomCmdp-v0', states=5, actions=2, seed=1); print(env.reset(seed=0)[0])"
    )
    names, left, state = run(f"{order}\nprint(*gymnasium.registry)\n{finders}\n{env}").splitlines()
    assert set(ENTRY_POINTS) <= set(names.split()) and left == "0" and state


def test_every_environment_can_be_found_by_its_text():
    for name in ENTRY_POINTS:
        spec = gymnasium.spec(name)
        for text in (spec.entry_point, spec.vector_entry_point):
            assert callable(gymnasium.envs.registration.load_env_creator(text))
