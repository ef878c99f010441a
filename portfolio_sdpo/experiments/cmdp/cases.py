"""One run of a grid: which settings it has, in which folder it is, and whether it is done.

<home>/experiments/<experiment>/<label>-<CMDP seed>-<run seed>/
    config.json, metrics.parquet, checkpoint-*.safetensors     the trainer's
    final.json                                                 what the trained policy is worth; the run is done
    evaluation.npy                                             its returns on fresh episodes
    failure.json                                               instead of the two above: why it failed
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.envs import Cmdp
from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.cmdp.declared import USUAL_FRESH_EPISODES, CmdpSettings, Experiment
from portfolio_sdpo.experiments.engine.folders import experiment_folder, read_json, write_content
from portfolio_sdpo.experiments.engine.grid import Run
from portfolio_sdpo.rl import TrainSettings, checkpoint

START = "start"
"""Label of the runs that find the feasible start."""


@dataclass(frozen=True)
class Case(Run):
    """One algorithm on one CMDP with one seed; picklable, so that a worker process can run it."""

    experiment: Experiment
    label: str
    cmdp_seed: int
    seed: int
    root: Path
    """The experiment's folder."""

    @property
    def name(self) -> str:
        return f"{self.label}-{self.cmdp_seed}-{self.seed}"

    @property
    def total(self) -> int:
        safe_start = self.experiment.safe_start
        return safe_start.iterations if safe_start and self.label == START else self.experiment.iterations

    @property
    def before(self) -> Case | None:
        return self.start

    @property
    def start(self) -> Case | None:
        """The run that finds this one's feasible start."""
        if self.experiment.safe_start is None or self.label == START:
            return None
        return Case(self.experiment, START, self.cmdp_seed, self.seed, self.root)

    @property
    def episodes(self) -> int:
        """Per iteration."""
        safe_start = self.experiment.safe_start
        return safe_start.episodes if safe_start and self.label == START else self.experiment.episodes

    def settings(self, cmdp: Cmdp) -> TrainSettings:
        """Everything about the run; the feasible start has to be there already."""
        experiment, safe_start = self.experiment, self.experiment.safe_start
        shared: dict[str, Any] = {
            "steps": experiment.cmdp.horizon,
            "seed": self.seed,
            "environment": self._environment(cmdp),
            "checkpoint_every": experiment.checkpoint_every,
            "tensorboard": experiment.tensorboard,
        }
        if safe_start is not None and self.label == START:
            tight = tuple(
                constraint.model_copy(update={"bound": bound, "name": f"{constraint.name} (phase I: {bound:g})"})
                for constraint, bound in zip(experiment.problem.constraints, safe_start.bounds, strict=True)
            )
            return TrainSettings(
                problem=experiment.problem.model_copy(update={"constraints": tight}),
                algorithm=safe_start.algorithm,
                iterations=safe_start.iterations,
                **shared,
            )
        if self.start is not None:
            found = checkpoint.checkpoints(self.start.folder)
            if not found:
                raise RunError(f"{self.start.folder} has no checkpoint: run the experiment again, which makes it anew.")
            shared["start"] = found[-1]
        return TrainSettings(
            problem=experiment.problem_of(self.label),
            algorithm=experiment.algorithms[self.label],
            iterations=experiment.iterations,
            **shared,
        )

    def _environment(self, cmdp: Cmdp) -> str:
        """What makes the log what it is and is in no other setting."""
        tables, safe_start = self.experiment.cmdp, self.experiment.safe_start
        text = (
            f"random_cmdp({tables.states}, {tables.actions}, seed={self.cmdp_seed}, "
            f"noise_scale={tables.noise_scale:g}, horizon={tables.horizon}) x {self.episodes}, tables {digest(cmdp)}"
        )
        if safe_start is not None and self.label == START:
            return f"{text}, tried on {safe_start.fresh_episodes}"
        # The usual number goes without saying, as it always has: a run's fingerprint depends on this text.
        fresh = self.experiment.fresh_episodes
        return text if fresh == USUAL_FRESH_EPISODES else f"{text}, probed on {fresh}"

    def done(self) -> bool:
        if not (self.folder / "config.json").exists() or (self.start is not None and not self.start.done()):
            return False
        begun = self.begun(self.settings(_drawn(self.experiment.cmdp, self.cmdp_seed)))
        # A start is there for its checkpoint; if that is lost, the run is made again.
        lost = self.label == START and not checkpoint.checkpoints(self.folder)
        return begun and (self.folder / "final.json").exists() and not lost

    def record(self, figures: dict[str, float], returns: NDArray[np.float64] | None = None) -> None:
        """Write down what the final policy is worth, which marks the run as done."""
        if returns is not None:
            content = io.BytesIO()
            np.save(content, returns)
            write_content(self.folder / "evaluation.npy", content.getvalue())
        self.mark_done(figures=figures)

    def details(self) -> dict[str, Any]:
        return self.settings(_drawn(self.experiment.cmdp, self.cmdp_seed)).model_dump(mode="json")

    def found(self) -> dict[str, Any]:
        return dict(read_json(self.folder / "final.json")["figures"])

    def identity(self) -> dict[str, Any]:
        return {"label": self.label, "cmdp_seed": self.cmdp_seed, "seed": self.seed}


@lru_cache(maxsize=8)
def _drawn(tables: CmdpSettings, seed: int) -> Cmdp:
    """Tables that are only looked at; several algorithms share them."""
    return tables.draw(seed)


def cases(experiment: Experiment, root: Path | None = None) -> list[Case]:
    """Every run of the grid, seed by seed, so that an interrupted grid has whole comparisons."""
    folder = root or experiment_folder(experiment.name)
    return [
        Case(experiment, label, cmdp_seed, seed, folder)
        for cmdp_seed, seed in experiment.runs()
        for label in experiment.algorithms
    ]


def digest(cmdp: Cmdp) -> str:
    """A short name for the content of the CMDP: its tables, the names of its costs and its horizon."""
    content = hashlib.sha256(json.dumps([cmdp.horizon, *cmdp.costs]).encode())
    for table in (cmdp.successors, cmdp.probabilities, cmdp.reward, cmdp.noise, cmdp.initial, *cmdp.costs.values()):
        content.update(np.ascontiguousarray(table).tobytes())
    return content.hexdigest()[:16]
