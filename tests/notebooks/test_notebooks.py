"""Every notebook runs from top to bottom in a fresh kernel, comes to what it says, and is stored with its outputs."""

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import nbformat
import pytest

from portfolio_sdpo.experiments.safety.declared import find_safety_experiment
from portfolio_sdpo.experiments.safety.study import list_safety_runs
from portfolio_sdpo.rl.metrics import write_config, write_rows

ROOT = Path(__file__).parents[2]
FOLDER, PAGES = ROOT / "notebooks", ROOT / "docs" / "notebooks"
NAMES = ("01_quickstart", "02_your_own_prices", "03_your_own_risk_measure", "04_the_paper")

# What must be true once a notebook has run, in its own words: the last cell of it.
CHECKS = {
    "01_quickstart": """
        assert weights.index.tolist() == ["CASH", *prices.columns]
        for each in (weights, own):
            assert abs(each.sum() - 1) < 1e-6 and (each >= 0).all()
        assert weights["CASH"] >= own["CASH"] - 1e-9
        assert len(trace) == FIRST and (trace["objective"].iloc[-10:].mean() > trace["objective"].iloc[:5].mean())
        assert list(kept.index) == [*looks] and kept["sdpo + shield"]
        assert abs(result.wealth.iloc[-1] - result.metrics["final_wealth"]).max() < 1e-9
        assert 0 < held["CASH"].mean() < 1 and (held.sum(axis=1) - 1).abs().max() < 1e-9
        assert same and page.is_file()
        source = next(cell for cell in In if "fit(prices)" in cell)
        assert len([line for line in source.splitlines() if line.strip()]) < 10
    """,
    "02_your_own_prices": """
        assert unchanged and same_track
        assert second.frame.index[-1] > first.frame.index[-1] and second.manifest.parent == first.manifest.sha256
        kinds = {finding.kind for finding in report.findings}
        assert kinds == {"non-positive", "duplicate", "gap", "suspension", "late-listing"}
        assert first.frame["DOW"].first_valid_index() == pd.Timestamp("2019-03-20")
        assert first.frame.loc["2019-01-31", "AAPL"] == round(sample.loc["2019-01-31", "AAPL"], 4)
        assert readjusted.readjusted == ("MSFT",) and content_hash(old.frame) == first.manifest.sha256
        assert not any(check.problem for check in Store().verify(NAME))
    """,
    "03_your_own_risk_measure": """
        assert hand_error < 1e-12 and definition_error < 1e-4
        assert bound_held == (final["SDPO"][1] <= BOUND) and final["PPO"][1] > BOUND
        assert bound_held and portfolio_held
        assert uniform[0] < final["SDPO"][0] < final["PPO"][0] < best.mean
        assert {row["regime_0"] for row in logs["SDPO"]} <= {"interior", "margin", "violated"}
        assert abs(tracks[0].next_weights.sum() - 1) < 1e-9 and tracks[0].next_weights[0] < 1
        assert weekly["own limit"] < weekly["equal-weight"]
    """,
    "04_the_paper": """
        import shutil
        from portfolio_sdpo.experiments.engine.folders import experiment_folder
        assert made_here and [study.name for study in found["A"]] == ["smoke-cmdp-variance"]
        assert all(each.status == "finished" for each in outcomes) and len(toy.finished().names) == 3 * len(SEEDS)
        assert [study.name for study in found["B"]] == ["safety-b-pointgoal1-short"]
        assert not found["C"] and not found["D"]
        assert {(row["question"], row["figure"]) for row in sources} == {
            ("A", "learning.png"), ("A", "evaluation.png"), ("B", "learning.png")
        }
        assert sources[-1]["finished runs"] == "PPO 1, SDPO 2"

        # Runs of other settings where stored ones are looked for do not count.
        laptop = next(study for study in plan_studies("A", "laptop") if study.name == "cmdp-variance-binding")
        seeds = {seed: cmdp for cmdp, seed in laptop.experiment.runs()}
        for run in toy.root.glob("*-*-*/final.json"):
            label, _, seed = run.parent.name.rsplit("-", 2)
            goal = experiment_folder(laptop.name) / f"{label}-{seeds[int(seed)]}-{seed}"
            shutil.copytree(run.parent, goal)
        assert laptop.finished().foreign == 6 and not list(stored("A"))

        # Those that are as declared do.
        plan_studies = lambda question, scale: [toy]
        assert [study.name for study in stored("A")] == ["smoke-cmdp-variance"]
    """,
}
FIGURES = {"01_quickstart": 6, "02_your_own_prices": 3, "03_your_own_risk_measure": 3, "04_the_paper": 3}
# The cells, by their numbers, whose words follow from no training, which other processors round differently.
EXACT = {
    "01_quickstart": {4, 14},
    "02_your_own_prices": set(range(1, 14)),
    "03_your_own_risk_measure": {3, 6},
    "04_the_paper": {4, 8, 9},
}
# The test adds runs of question (B), which the stored notebook does not have.
OTHERS = {"04_the_paper": {3, 7, 10}}


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """The script that makes what is stored."""
    spec = importlib.util.spec_from_file_location("make_notebooks", ROOT / "docs" / "make_notebooks.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["make_notebooks"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


@pytest.fixture
def home(maker: ModuleType, tmp_path: Path) -> Iterator[Path]:
    """A home and a kernel of its own."""
    with maker.surroundings(tmp_path) as folder:
        yield folder


def store_safety_runs(home: Path) -> None:
    """Three finished runs of question (B), their logs written by hand."""
    experiment = find_safety_experiment("safety-b-pointgoal1-short")
    for run in list_safety_runs(experiment, home / "experiments" / experiment.name):
        if run.name in ("ppo-0", "sdpo-0", "sdpo-1"):
            settings = run.settings()
            run.folder.mkdir(parents=True)
            write_config(run.folder / "config.json", settings, settings.fingerprint(""), "", "")
            rows = [
                {
                    "iteration": float(iteration),
                    "total_steps": 10_000.0 * (iteration + 1),
                    "episode_return": float(iteration),
                    "risk_empirical_0": 30.0 if run.label == "ppo" else 20.0,
                    "batch_cost": 200.0,
                }
                for iteration in range(12)
            ]
            write_rows(run.folder / "metrics.parquet", rows)
            run.mark_done(iterations=len(rows), workers=0, steps_per_second=100.0)


def shape(cell: nbformat.NotebookNode) -> list[tuple[str, ...]]:
    """What kinds of output a cell has, in order."""
    return [(output.output_type, output.get("name", ""), *sorted(output.get("data", {}))) for output in cell.outputs]


@pytest.mark.parametrize("name", NAMES)
def test_runs_from_top_to_bottom_and_comes_to_what_it_says(name: str, maker: ModuleType, home: Path, tmp_path: Path):
    if name == "04_the_paper":
        store_safety_runs(home)
    notebook = read(name)
    notebook.cells.append(nbformat.v4.new_code_cell(dedent(CHECKS[name]), id="check"))
    executed = maker.execute(notebook, tmp_path)
    executed.cells.pop()
    outputs = [output for cell in executed.cells if cell.cell_type == "code" for output in cell.outputs]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == FIGURES[name]
    # Nobody wants to read where another machine keeps its files.
    assert str(tmp_path) not in json.dumps(outputs)
    # A warning that a reader would see is a fault as well.
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    fresh = maker.store_outputs(executed)
    for cell, stored in zip(fresh.cells, read(name).cells, strict=True):
        number = cell.get("execution_count")
        if cell.cell_type == "code" and number not in OTHERS.get(name, ()):
            assert shape(cell) == shape(stored), number
            if number in EXACT[name]:
                assert list(map(maker.read_text, cell.outputs)) == list(map(maker.read_text, stored.outputs)), number


@pytest.mark.parametrize("name", NAMES)
def test_is_stored_with_the_outputs_of_its_code(name: str, maker: ModuleType):
    notebook = read(name)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert notebook.metadata[maker.SOURCE] == maker.hash_code(notebook), f"run `{maker.COMMAND}`"
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert all("execution" not in cell.metadata for cell in notebook.cells)
    # Small enough for a repository, and nothing in it about the machine that made it.
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 250_000
    words = "\n".join(filter(None, map(maker.read_text, outputs)))
    assert re.search(r"/(tmp|home|root|Users|var)/", words) is None


@pytest.mark.parametrize("name", NAMES)
def test_its_page_is_up_to_date(name: str, maker: ModuleType):
    found = {path.name: path.read_bytes() for path in PAGES.glob(f"{name}*")}
    assert found == maker.render(name, read(name)), f"run `{maker.COMMAND}`"
    for target in maker._LINK.findall(found[f"{name}.md"].decode()):
        assert (PAGES / target[0]).exists(), target


@pytest.mark.parametrize("name", NAMES)
def test_can_be_read_alone(name: str):
    notebook = read(name)
    # A title, what it is about, and sizes that say what to raise.
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    (settings,) = (
        notebook.cells[place + 1]
        for place, cell in enumerate(notebook.cells)
        if cell.cell_type == "markdown" and cell.source.startswith("## Settings")
    )
    assert settings.cell_type == "code" and "for real results" in settings.source
    # Prose first: no code without a word on what it is for, other than what goes on from the cell before.
    prose = sum(cell.cell_type == "markdown" for cell in notebook.cells)
    assert prose >= 0.4 * len(notebook.cells)
    private = [line for cell in notebook.cells for line in cell.source.splitlines() if "import _" in line]
    assert private == []


def test_every_notebook_is_tested_and_listed():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(NAMES)
    listed = (FOLDER / "README.md").read_text()
    assert all(f"{name}.ipynb" in listed for name in NAMES)
