"""The experiments behind each of the paper's questions at each scale, in one shape whatever their kind.

`smoke` are toys in folders of their own (see `smoke`). `laptop` are the declared experiments that a small machine can
run within hours, `paper` those with the paper's tables and its numbers of runs; both use the folders of `experiment
run`, so that neither makes again what is there. Runs of different sizes have different names or folders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Unpack, get_args

from portfolio_sdpo.envs.safety.tasks import TASKS
from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.cmdp.cases import Case, cases
from portfolio_sdpo.experiments.cmdp.declared import Experiment, find_experiment
from portfolio_sdpo.experiments.cmdp.figures import make_figures
from portfolio_sdpo.experiments.cmdp.runs import run_experiment
from portfolio_sdpo.experiments.cmdp.summary import cmdp_evidence
from portfolio_sdpo.experiments.engine.folders import experiment_folder, read_json
from portfolio_sdpo.experiments.engine.grid import Means, Outcome, Run
from portfolio_sdpo.experiments.paper import smoke
from portfolio_sdpo.experiments.paper.evidence import Evidence
from portfolio_sdpo.experiments.safety.declared import SafetyExperiment, find_safety_experiment
from portfolio_sdpo.experiments.safety.figures import make_safety_figures
from portfolio_sdpo.experiments.safety.runs import run_safety, safety_runs
from portfolio_sdpo.experiments.safety.summary import safety_evidence
from portfolio_sdpo.experiments.stocks.declared import STOCKS, StocksExperiment
from portfolio_sdpo.experiments.stocks.figures import make_stocks_figures
from portfolio_sdpo.experiments.stocks.runs import chosen as chosen_walks
from portfolio_sdpo.experiments.stocks.runs import made, run_stocks
from portfolio_sdpo.experiments.stocks.summary import stocks_evidence
from portfolio_sdpo.rl.progress import Board

Scale = Literal["smoke", "laptop", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
LAPTOP_SEEDS = (0, 1, 2)
"""Of Safety Gym and stocks; the fewest with which one algorithm can be told from another."""


@dataclass(frozen=True)
class Found:
    """Runs that are there."""

    names: tuple[str, ...]
    """of those that are finished and exactly as declared; of stocks, their labels"""
    foreign: int = 0
    """how many more there are, of other settings or another version: they do not count"""

    @classmethod
    def among(cls, runs: Sequence[Run]) -> Found:
        """By what their folders say."""
        names, foreign = [], 0
        for run in runs:
            try:
                names += [run.name] if run.done() else []
            except RunError:
                foreign += 1
        return cls(tuple(names), foreign)


@dataclass(frozen=True)
class Study(ABC):
    """One experiment with exactly the runs that are asked for."""

    experiment: Any
    """as declared, with the seeds and algorithms of these runs"""
    role: str
    """what it is for, in words"""
    home: Path | None = field(default=None, kw_only=True)
    """where its folder is, by default the user's own"""

    @property
    def name(self) -> str:
        return str(self.experiment.name)

    @property
    def root(self) -> Path:
        """The experiment's folder."""
        return experiment_folder(self.name) if self.home is None else self.home / self.name

    def board(self) -> Board:
        """What shows its runs."""
        problem = getattr(self.experiment, "problem", None)
        return Board(problem.constraints if problem else (), self.experiment.title)

    @abstractmethod
    def run(self, board: Board | None = None, **means: Unpack[Means]) -> list[Outcome]:
        """Make what is missing, and show it meanwhile."""

    @abstractmethod
    def found(self) -> Found:
        """Which of them are there."""

    @abstractmethod
    def evidence(self, found: Found) -> Evidence:
        """What these runs say; a `RunError` if there are none."""

    @abstractmethod
    def draw(self, found: Found) -> list[Path]:
        """The paper's figures of these runs, as PNG files."""

    @abstractmethod
    def size(self) -> dict[str, str]:
        """What was asked for, under the same keys as the paper's `Question.size`."""

    @property
    @abstractmethod
    def wanted(self) -> int:
        """Runs of all algorithms together."""

    @abstractmethod
    def versions(self, found: Found) -> list[str]:
        """Of the package that the runs were made with."""


@dataclass(frozen=True)
class CmdpStudy(Study):
    """On random CMDPs."""

    experiment: Experiment

    def run(self, board: Board | None = None, **means: Unpack[Means]) -> list[Outcome]:
        return run_experiment(self.experiment, root=self.root, board=board, **means)

    def found(self) -> Found:
        return Found.among(cases(self.experiment, self.root))

    def evidence(self, found: Found) -> Evidence:
        return cmdp_evidence(self.experiment, self.root, self._cases(found))

    def draw(self, found: Found) -> list[Path]:
        return _pictures(make_figures(self.experiment, self.root, self._cases(found)))

    def size(self) -> dict[str, str]:
        experiment, cmdp = self.experiment, self.experiment.cmdp
        used = list(dict.fromkeys(cmdp_seed for cmdp_seed, _ in experiment.runs()))
        seeds = ", ".join(map(str, used))
        noise = f", reward noise {cmdp.noise_scale:g} r³" if cmdp.noise_scale else ""
        return {
            "runs of each algorithm": f"{len(experiment.seeds)}, on CMDP{'s' * (len(used) > 1)} {seeds}",
            "problem": f"{cmdp.states} states, {cmdp.actions} actions, {cmdp.horizon} steps{noise}",
            "batch": f"{experiment.episodes * cmdp.horizon:,} steps",
            "length": f"{experiment.iterations} iterations",
        }

    @property
    def wanted(self) -> int:
        return len(cases(self.experiment, self.root))

    def versions(self, found: Found) -> list[str]:
        return _versions([self.root / name for name in found.names])

    def _cases(self, found: Found) -> list[Case]:
        return [case for case in cases(self.experiment, self.root) if case.name in found.names]


@dataclass(frozen=True)
class SafetyStudy(Study):
    """On Safety Gym."""

    experiment: SafetyExperiment

    def run(self, board: Board | None = None, **means: Unpack[Means]) -> list[Outcome]:
        return run_safety(self.experiment, root=self.root, board=board, **means)

    def found(self) -> Found:
        return Found.among(safety_runs(self.experiment, self.root))

    def evidence(self, found: Found) -> Evidence:
        return safety_evidence(self.experiment, self.root, found.names)

    def draw(self, found: Found) -> list[Path]:
        return _pictures(make_safety_figures(self.experiment, self.root, found.names))

    def size(self) -> dict[str, str]:
        experiment = self.experiment
        ends = ", hazards end the episode" if experiment.world.terminal_hazards else ""
        steps = experiment.iterations * experiment.batch
        return {
            "runs of each algorithm": str(len(experiment.seeds)),
            "problem": f"{experiment.world.task}, {experiment.world.horizon} steps{ends}",
            "batch": f"{experiment.batch:,} steps",
            "length": f"{experiment.iterations} iterations, {steps:,} steps",
        }

    @property
    def wanted(self) -> int:
        return len(safety_runs(self.experiment, self.root))

    def versions(self, found: Found) -> list[str]:
        return _versions([self.root / name for name in found.names])


@dataclass(frozen=True)
class StocksStudy(Study):
    """On stocks."""

    experiment: StocksExperiment

    def run(self, board: Board | None = None, **means: Unpack[Means]) -> list[Outcome]:
        return run_stocks(self.experiment, root=self.root, board=board, **means)

    def found(self) -> Found:
        there = [each for each in made(self.experiment, self.root) if each.label in self.experiment.shown]
        others = [each for each in there if not each.declared_by(self.experiment)]
        # A label is replaced as a whole, so it counts as a whole.
        mixed = {each.label for each in others}
        ours = [each for each in there if set(each.seeds) & set(self.experiment.seeds)]
        labels = dict.fromkeys(each.label for each in ours if each.label not in mixed)
        return Found(tuple(labels), sum(len(each.seeds) for each in there if each.label in mixed))

    def evidence(self, found: Found) -> Evidence:
        return stocks_evidence(self.experiment, self.root, found.names, self.experiment.seeds)

    def draw(self, found: Found) -> list[Path]:
        return _pictures(make_stocks_figures(self.experiment, self.root, found.names, self.experiment.seeds))

    def size(self) -> dict[str, str]:
        experiment = self.experiment
        agent = experiment.algorithms[experiment.shown[0]]
        horizon = agent.limit.horizon
        return {
            "runs of each algorithm": str(len(experiment.seeds)),
            "problem": f"nine stocks and cash, {experiment.start} to {experiment.end}, the last {horizon} sessions "
            "replayed",
            "batch": f"{agent.episodes * horizon:,} steps",
            "length": f"{agent.further} updates a day",
        }

    @property
    def wanted(self) -> int:
        return len(self.experiment.shown) * len(self.experiment.seeds)

    def versions(self, found: Found) -> list[str]:
        there = chosen_walks(self.experiment, self.root, found.names, self.experiment.seeds)
        return _versions([each.folder for each in there])


_PAPER_BOUND = "the paper's bound, which the unconstrained optimum keeps anyway"
_BINDING = "not in the paper: a bound that binds, so that keeping it costs something"
_SHORT = "the same question within 500,000 steps, with settings for short runs"
_PAPER = "the paper's own settings"
_TOY = "a toy: shows that everything runs, and nothing else"
_PAPER_CMDPS: dict[str, Any] = {"cmdp_seeds": (5, 10), "seeds": tuple(range(10))}


def studies(question: str, scale: Scale, home: Path | None = None) -> list[Study]:
    """What is run for one question, A to D."""
    match question, scale:
        case "A", "smoke":
            return [CmdpStudy(each, _TOY, home=home) for each in (smoke.CMDP_CVAR, smoke.CMDP_VARIANCE)]
        case "A", _:
            changes = _PAPER_CMDPS if scale == "paper" else {}
            roles = {"cmdp-cvar": _PAPER_BOUND, "cmdp-variance": _PAPER_BOUND}
            if scale == "laptop":
                roles |= {"cmdp-cvar-binding": _BINDING, "cmdp-variance-binding": _BINDING}
            return [CmdpStudy(_cmdp(name, changes), role, home=home) for name, role in roles.items()]
        case "B" | "C", "smoke":
            return [SafetyStudy(smoke.SAFETY_B if question == "B" else smoke.SAFETY_C, _TOY, home=home)]
        case "B" | "C", "laptop":
            name = "safety-b-pointgoal1-short" if question == "B" else "safety-c-short"
            return [SafetyStudy(_safety(name, question, LAPTOP_SEEDS), _SHORT, home=home)]
        case "B", _:
            names = [f"safety-b-{task.lower()}" for task in TASKS]
            return [SafetyStudy(_safety(name, "B", tuple(range(10))), _PAPER, home=home) for name in names]
        case "C", _:
            return [SafetyStudy(_safety("safety-c", "C", tuple(range(5))), _PAPER, home=home)]
        case _, "smoke":
            return [StocksStudy(smoke.STOCKS_TOY, _TOY, home=home)]
        case _:
            few = STOCKS.with_changes(seeds=LAPTOP_SEEDS) if scale == "laptop" else STOCKS
            return [StocksStudy(few, _PAPER, home=home)]


def _cmdp(name: str, changes: dict[str, Any]) -> Experiment:
    rival = "pd-cvar" if "cvar" in name else "pd-var"
    return find_experiment(name).with_changes(algorithms=("ppo", "sdpo", rival), **changes)


def _safety(name: str, question: str, seeds: tuple[int, ...]) -> SafetyExperiment:
    """With the algorithms that the paper compares there."""
    labels = ("ppo", "ipo", "sdpo", *(("cpo", "pcpo") if question == "B" else ()))
    return find_safety_experiment(name).with_changes(algorithms=labels, seeds=seeds)


def _versions(folders: Sequence[Path]) -> list[str]:
    records = [read_json(folder / "config.json") for folder in folders]
    return sorted({str(record.get("version") or record.get("package_version")) for record in records})


def _pictures(files: Sequence[Path]) -> list[Path]:
    return [path for path in files if path.suffix == ".png"]
