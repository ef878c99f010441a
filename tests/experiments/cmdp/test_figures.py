"""Figures and the page for the terminal are made from what the folder holds."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from rich.console import Console

from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.cmdp.declared import CMDP_EXPERIMENTS
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.figures import Curves, draw_boxes, make_cmdp_figures
from portfolio_sdpo.experiments.cmdp.report import describe_cmdp, render_cmdp
from portfolio_sdpo.experiments.cmdp.study import list_cmdp_runs
from portfolio_sdpo.experiments.cmdp.summary import summarise_cmdp
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl import Problem


@pytest.fixture
def folder(tiny_run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run[0], tmp_path / "tiny"))


def page(renderable) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(renderable)
    return console.file.getvalue()


def test_figures_are_made(tiny: CmdpExperiment, folder: Path):
    files = make_cmdp_figures(tiny, folder)
    assert [path.name for path in files] == ["learning.png", "learning.svg", "evaluation.png", "evaluation.svg"]
    for path in files[::2]:
        pixels = image.imread(path)
        assert pixels.shape[0] > 300 and pixels.shape[1] > 900
        assert pixels[..., :3].std() > 0.05  # something is drawn
    learning = files[1].read_text()
    for text in ("PPO", "SDPO", "≤ 4", "± 1 sd over 2 runs", "optimum", "uniform", "variance of the return"):
        assert text in learning


@pytest.mark.parametrize(
    ("spec", "marked"),
    [
        ("cvar(0.2) of reward >= -99", True),
        ("cvar(0.2) of wear <= 99", False),
        ("cvar(0.2) of reward <= 99", False),
        ("cvar(0.2) of reward >= -99 discount=1", False),
    ],
)
def test_only_a_lower_tail_of_the_return_is_marked(tiny: CmdpExperiment, spec: str, marked: bool):
    """A box shows the discounted reward: an α that belongs to the tail of something else would mislead."""
    problem = Problem(constraints=(*tiny.problem.constraints, Constraint.from_spec(spec)))
    curves = [Curves(label, [], np.random.default_rng(0).normal(size=(2, 50))) for label in ("ppo", "sdpo")]
    figure = draw_boxes(CmdpExperiment(**{**dict(tiny), "problem": problem}), curves)
    assert ("0.2-CVaR" in figure.axes[0].get_xlabel()) == marked
    diamonds = [line for line in figure.axes[0].lines if line.get_marker() == "D"]
    assert len(diamonds) == (2 if marked else 0)


def test_the_same_runs_give_the_same_figure(tiny: CmdpExperiment, folder: Path):
    first, second = (make_cmdp_figures(tiny, folder)[1].read_bytes() for _ in range(2))
    assert first == second


def test_figures_of_some_runs(tiny: CmdpExperiment, folder: Path):
    selected = tiny.with_changes(seeds=(0,), algorithms=("sdpo",))
    names = [run.name for run in list_cmdp_runs(selected, folder)]
    learning = make_cmdp_figures(selected, folder, only=names)[1].read_text()
    assert "SDPO" in learning and "PPO" not in learning.replace("SDPO", "") and "sd over" not in learning


def test_unfinished_runs_are_not_drawn(tiny: CmdpExperiment, folder: Path):
    for final in folder.glob("*/final.json"):
        final.unlink()
    with pytest.raises(RunError, match=r"no run in .* is finished"):
        make_cmdp_figures(tiny, folder)


def test_the_page_has_every_policy(tiny: CmdpExperiment, folder: Path):
    text = page(render_cmdp(summarise_cmdp(tiny, folder)))
    for word in ("PPO", "SDPO", "uniform", "optimum", "unconstrained", "breaks", "exact", "±", "Σ 1/η"):
        assert word in text
    assert "…" not in text
    assert "unfinished" not in text and "other settings" not in text


def test_the_list_has_every_experiment():
    text = "\n".join(page(describe_cmdp(each)) for each in CMDP_EXPERIMENTS.values())
    assert all(name in text for name in CMDP_EXPERIMENTS)
