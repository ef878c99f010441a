"""Every notebook runs from top to bottom in a fresh kernel, comes to what it says, and is stored without results."""

import json
import sys
from pathlib import Path
from textwrap import dedent

import nbformat
import pytest
from nbclient import NotebookClient

from portfolio_sdpo.experiments.safety.declared import find_safety_experiment
from portfolio_sdpo.experiments.safety.study import list_safety_runs
from portfolio_sdpo.rl.metrics import write_config, write_rows

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = ("01_quickstart", "02_your_own_prices", "03_your_own_risk_measure", "04_the_paper")
KERNEL = "notebooks-under-test"

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


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and a kernel that is this very interpreter, whatever is installed elsewhere."""
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": KERNEL,
        "language": "python",
    }
    place = tmp_path / "jupyter" / "kernels" / KERNEL
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps(spec))
    home = tmp_path / "home"
    for name, value in {
        "JUPYTER_PATH": tmp_path / "jupyter",
        "JUPYTER_RUNTIME_DIR": tmp_path / "runtime",
        "IPYTHONDIR": tmp_path / "ipython",
        "PORTFOLIO_SDPO_HOME": home,
        "TMPDIR": tmp_path,
        "OMP_NUM_THREADS": "1",
    }.items():
        monkeypatch.setenv(name, str(value))
    # Where figures are not to open windows there are none in a notebook either.
    monkeypatch.delenv("MPLBACKEND", raising=False)
    return home


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


def execute(name: str, folder: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs and its check as a last cell; an error in any cell is raised."""
    notebook = read(name)
    notebook.cells.append(nbformat.v4.new_code_cell(dedent(CHECKS[name]), id="check"))
    client = NotebookClient(notebook, timeout=None, kernel_name=KERNEL, resources={"metadata": {"path": str(folder)}})
    return client.execute()


@pytest.mark.parametrize("name", NAMES)
def test_runs_from_top_to_bottom_and_comes_to_what_it_says(name: str, surroundings: Path, tmp_path: Path):
    if name == "04_the_paper":
        store_safety_runs(surroundings)
    executed = execute(name, tmp_path)
    outputs = [output for cell in executed.cells if cell.cell_type == "code" for output in cell.outputs]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == FIGURES[name]
    # Nobody wants to read where another machine keeps its files.
    assert str(tmp_path) not in json.dumps(outputs)
    # A warning that a reader would see is a fault as well.
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []


@pytest.mark.parametrize("name", NAMES)
def test_is_stored_without_results_and_can_be_read_alone(name: str):
    notebook = read(name)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert cell.cell_type == "markdown" or (cell.execution_count, cell.outputs) == (None, [])
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
