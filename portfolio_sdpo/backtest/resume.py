"""Walks that survive their process: what an agent decided and learned is saved as it goes, in `walks/<run>` of the data
directory, and a walk with the same version, settings, seed, prices and days goes on after the last saved decision.

decisions.json           whose walk it is, what was decided, warned of and traced so far
checkpoint-*.safetensors the learner after so many decisions (`rl.checkpoint`)

Decisions are written first: after a crash in between, they are cut back to the checkpoint. The saved ones are replayed
through the same accounting, so the track ends with the same bytes. Saving takes at most a fiftieth of the time.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import time
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from portfolio_sdpo import __version__
from portfolio_sdpo.common.files import write_atomically
from portfolio_sdpo.errors import CheckpointError
from portfolio_sdpo.portfolio.market import Array, Market
from portfolio_sdpo.portfolio.resume import home
from portfolio_sdpo.rl.checkpoint import checkpoints, fingerprint, save_checkpoint

if TYPE_CHECKING:
    from portfolio_sdpo.portfolio.agent import Agent

DECISIONS = "decisions.json"
LOCK = ".lock"
SHARE = 0.02
"""Of the time, that saving may take."""


def run_of(agent: Agent, surroundings: dict[str, Any]) -> str:
    """The name of a walk: whatever its decisions depend on goes into it."""
    return fingerprint(
        [
            __version__,
            agent.settings.model_dump_json(),
            str(agent.seed),
            json.dumps(surroundings, sort_keys=True, default=str),
        ]
    )


def discard(run: str) -> None:
    """Forget a walk, unless another process is at it."""
    folder = home() / run
    lock = _lock(folder)
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def saved_decisions(run: str) -> int:
    """How many decisions a walk would not have to make again."""
    try:
        made = len(json.loads((home() / run / DECISIONS).read_bytes())["decisions"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    numbers = [int(path.stem.rpartition("-")[2]) for path in checkpoints(home() / run)]
    return max((number for number in numbers if number <= made), default=0)


class Kept:
    """An agent on a walk that can be continued; a `Strategy` itself."""

    def __init__(self, agent: Agent, run: str) -> None:
        self.agent = agent
        self.run = run
        self.folder = home() / run
        self._decisions: list[dict[str, Any]] = []
        self._lock: IO[bytes] | None = None
        self._given_up = False
        self._saved, self._at, self._took = 0, time.monotonic(), 0.0
        self._load()
        self._known = {each["date"]: each for each in self._decisions}

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def every(self) -> int:
        return self.agent.every

    def decide(self, history: Market, held: Array) -> Array:
        day = str(history.dates[-1])
        known = self._known.get(day)
        if known is None:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                weights = self.agent.decide(history, held)
            known = {
                "date": day,
                "weights": weights.tolist(),
                "warnings": [str(warning.message) for warning in caught],
                "updates": len(self.agent.trace),
            }
            self._decisions.append(known)
            if SHARE * (time.monotonic() - self._at) >= self._took:
                self._save()
        for text in known["warnings"]:
            warnings.warn(text, stacklevel=2)
        return np.array(known["weights"], dtype=np.float64)

    def close(self) -> None:
        """Save what is not saved yet, after the last decision, and let others have the walk."""
        if self._saved < len(self._decisions):
            self._save()
        self.release()

    def release(self) -> None:
        """Let others have the walk as it was saved last."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _save(self) -> None:
        if self._given_up or self.agent.learner is None:
            return
        begun = time.monotonic()
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
                self._given_up = True
                return
            write_atomically(self.folder / DECISIONS, json.dumps(content).encode())
            save_checkpoint(self.folder, self.agent.learner, len(self._decisions), self.run)
        except OSError:
            # A walk that cannot be continued is no reason to end it; if there is no room, the record will say so.
            self._given_up = True
        self._saved, self._at = len(self._decisions), time.monotonic()
        self._took = self._at - begun

    def _load(self) -> None:
        """Put the agent where the newest sound checkpoint has it; what is damaged does not count."""
        try:
            content = json.loads((self.folder / DECISIONS).read_bytes())
            decisions, trace, assets = content["decisions"], content["trace"], content["assets"]
        except (OSError, ValueError, KeyError, TypeError):
            return
        for path in reversed(checkpoints(self.folder)):
            number = int(path.stem.rpartition("-")[2])
            if not 0 < number <= len(decisions):
                continue
            last = decisions[number - 1]
            try:
                self.agent.restore(
                    path, self.run, assets, np.datetime64(last["date"], "D"), trace[: int(last["updates"])]
                )
            except CheckpointError:
                continue
            self._decisions, self._saved = decisions[:number], number
            return


def _lock(folder: Path) -> IO[bytes] | None:
    """The folder's lock, which dies with its process; None if another has it, or there is no folder."""
    try:
        lock = (folder / LOCK).open("ab")
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock
