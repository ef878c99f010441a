"""Training and backtests that survive their process: what an agent learned and decided is saved as it goes.

Each run has a folder `walks/<run>` in the data directory, named after everything that its outcome depends on: package
version, settings, seed, prices and days. The same run, started again, continues after the last saved step and ends with
the same bytes.

checkpoint-*.safetensors  the learner after so many decisions or updates (`rl.checkpoint`)
decisions.json            of a backtest: the agent, and its decisions, warnings and trace so far
training.json             of a training: the trace so far

The JSON file is written first: after a crash in between, it is cut back to the checkpoint. Both hold a hash of their
content: what was changed since does not count, and is made again. So is what an earlier version saved without a hash.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from portfolio_sdpo import __version__
from portfolio_sdpo.common.files import data_directory, open_sealed_json, seal_json, try_lock, write_atomically
from portfolio_sdpo.errors import CheckpointError, Interruption
from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.portfolio.market import Array, Market
from portfolio_sdpo.rl.checkpoint import checkpoints, fingerprint, save_checkpoint
from portfolio_sdpo.rl.trainer import interrupt_held_back

DECISIONS_FILE = "decisions.json"
TRAINING_FILE = "training.json"
LOCK = ".lock"
MAX_SAVING_SHARE = 0.02
"""Of the time of a backtest, that saving may take."""

log = logging.getLogger("portfolio_sdpo.resume")


def home() -> Path:
    """Where runs are kept until their result is written."""
    return data_directory() / "walks"


def make_run_id(agent: Agent, surroundings: dict[str, Any], *purpose: str) -> str:
    """The name of a run: everything that its outcome depends on goes into it.

    surroundings: what it depends on besides the agent and the package version, such as prices and days.
    """
    return fingerprint([*purpose, __version__, *agent.identity, json.dumps(surroundings, sort_keys=True, default=str)])


def discard_run(run: str) -> None:
    """Delete what is saved of a run, unless another process is at it."""
    folder = home() / run
    lock = _lock(folder)
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def count_saved_decisions(run: str) -> int:
    """How many decisions of a backtest would not have to be made again."""
    made = len(_read(home() / run / DECISIONS_FILE).get("decisions", ()))
    return max((number for number, _ in _numbered_checkpoints(home() / run, made)), default=0)


class ResumableAgent:
    """An agent whose backtest can be resumed; a `Strategy` itself.

    Saved decisions are replayed through the same accounting, so that the track ends with the same bytes. Several
    processes may run the same backtest; only the one that holds the folder's lock saves.
    """

    def __init__(self, agent: Agent, run: str) -> None:
        self.agent = agent
        self.run = run
        self.folder = home() / run
        self._decisions: list[dict[str, Any]] = []
        self._lock: IO[bytes] | None = None
        self._cannot_save = False
        self._saved, self._last_save, self._save_seconds = 0, time.monotonic(), 0.0
        self._load()
        self._known = {decision["date"]: decision for decision in self._decisions}

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def every(self) -> int:
        return self.agent.every

    def decide(self, history: Market, held: Array) -> Array:
        """The saved weights [A] of that close, or those of the agent."""
        day = str(history.dates[-1])
        decision = self._known.get(day)
        if decision is None:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                weights = self.agent.decide(history, held)
            decision = {
                "date": day,
                "weights": weights.tolist(),
                "warnings": [str(warning.message) for warning in caught],
                "updates": len(self.agent.trace),
            }
            self._decisions.append(decision)
            if MAX_SAVING_SHARE * (time.monotonic() - self._last_save) >= self._save_seconds:
                self._save()
        for text in decision["warnings"]:
            warnings.warn(text, stacklevel=2)
        return np.array(decision["weights"], dtype=np.float64)

    def close(self) -> None:
        """After the last decision: save what is not saved yet, and release the folder."""
        if self._saved < len(self._decisions):
            self._save()
        self.release()

    def release(self) -> None:
        """Let another process have the folder as it was saved last."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _save(self) -> None:
        if self._cannot_save or self.agent.learner is None:
            return
        started = time.monotonic()
        agent = {
            "label": self.agent.name,
            "seed": self.agent.seed,
            "settings": self.agent.settings.model_dump(mode="json"),
        }
        content = {
            "agent": agent,
            "assets": self.agent.assets,
            "decisions": self._decisions,
            "trace": self.agent.trace,
        }
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._lock or _lock(self.folder)
            if self._lock is None:
                self._cannot_save = True
                return
            write_atomically(self.folder / DECISIONS_FILE, seal_json(content))
            save_checkpoint(self.folder, self.agent.learner, len(self._decisions), self.run)
        except OSError:
            # A backtest that cannot be resumed is no reason to end it; if there is no room, the record will say so.
            self._cannot_save = True
        self._saved, self._last_save = len(self._decisions), time.monotonic()
        self._save_seconds = self._last_save - started

    def _load(self) -> None:
        content = _read(self.folder / DECISIONS_FILE, "its decisions are")
        if not content:
            return
        decisions, trace, assets = content["decisions"], content["trace"], content["assets"]

        def restore(path: Path, number: int) -> None:
            last = decisions[number - 1]
            day = np.datetime64(last["date"], "D")
            self.agent.restore(path, self.run, assets, day, trace[: int(last["updates"])])

        self._saved = _restore_newest(self.folder, len(decisions), restore)
        self._decisions = decisions[: self._saved]


@contextmanager
def resume_training(
    agent: Agent, assets: int, surroundings: dict[str, Any], progress: Callable[[int], None] | None = None
) -> Iterator[None]:
    """Continue the agent's training where it was interrupted, and let Ctrl-C stop it between updates, saved.

    assets: columns of the market. surroundings: as in `make_run_id`. An interrupt waits for the update under way, since
    a policy that is stopped inside one is half new. After the block nothing is kept: the agent is trained.
    """
    run = make_run_id(agent, surroundings, "train")
    folder = home() / run
    trace = _read(folder / TRAINING_FILE, "the training is").get("trace", [])
    _restore_newest(folder, len(trace), lambda path, number: agent.restore_training(path, run, assets, trace[:number]))
    if progress is not None:
        progress(len(agent.trace))
    with interrupt_held_back() as interrupted:

        def watch(number: int) -> None:
            if progress is not None:
                progress(number)
            # After the last update there is nothing left to interrupt but the writing.
            if interrupted.is_set() and number < agent.settings.first:
                raise Interruption(_save_training(agent, folder, run))

        agent.watch = watch
        try:
            yield
        finally:
            agent.watch = None
    shutil.rmtree(folder, ignore_errors=True)


def _save_training(agent: Agent, folder: Path, run: str) -> str:
    """Save an interrupted training; returns the sentence that the user reads."""
    assert agent.partial_learner is not None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / TRAINING_FILE, seal_json({"trace": agent.trace}))
        save_checkpoint(folder, agent.partial_learner, len(agent.trace), run)
    except OSError as error:
        return f"nothing is saved, since {folder} cannot be written ({error.strerror})"
    return f"{len(agent.trace)} of {agent.settings.first} updates are saved"


def _read(path: Path, lost: str | None = None) -> dict[str, Any]:
    """The content of a file as it was saved; nothing if there is none, or if it was changed since.

    lost: what is made again without it, for the sentence that says so.
    """
    try:
        return open_sealed_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        if lost is not None:
            log.warning("%s was changed after it was saved, or is of an earlier version: %s made again.", path, lost)
        return {}


def _numbered_checkpoints(folder: Path, most: int) -> Iterator[tuple[int, Path]]:
    """Checkpoints after at most so many steps, each with its number of steps, the newest first."""
    for path in reversed(checkpoints(folder)):
        number = int(path.stem.rpartition("-")[2])
        if 0 < number <= most:
            yield number, path


def _restore_newest(folder: Path, most: int, restore: Callable[[Path, int], None]) -> int:
    """Restore from the newest sound checkpoint; returns its number of steps, 0 if there is none."""
    for number, path in _numbered_checkpoints(folder, most):
        try:
            restore(path, number)
        except (CheckpointError, KeyError, TypeError, ValueError):
            continue  # damaged, or of other files
        return number
    return 0


def _lock(folder: Path) -> IO[bytes] | None:
    """The folder's lock, which dies with its process; None if another has it, or there is no folder."""
    try:
        file = (folder / LOCK).open("ab")
    except OSError:
        return None
    try:
        if try_lock(file):
            return file
    except OSError:
        pass
    file.close()
    return None
