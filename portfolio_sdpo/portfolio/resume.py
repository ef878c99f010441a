"""A training that survives Ctrl-C: what was learned is saved, and the same training goes on from there.

In `walks/<run>` of the data directory, beside walks: training.json, the trace so far, and the learner's checkpoint. An
interrupt waits for the update under way, since a policy stopped inside one is half new.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from portfolio_sdpo import __version__
from portfolio_sdpo.common.files import data_directory, write_atomically
from portfolio_sdpo.errors import CheckpointError, Interruption
from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.rl.checkpoint import checkpoints, fingerprint, save_checkpoint
from portfolio_sdpo.rl.trainer import interrupt_held_back

TRACE = "training.json"


def home() -> Path:
    """Where walks are kept until their backtest is written."""
    return data_directory() / "walks"


@contextmanager
def resumable(
    agent: Agent, assets: int, surroundings: dict[str, Any], progress: Callable[[int], None] | None = None
) -> Iterator[None]:
    """Put the agent where the same training was interrupted, and interrupt this one only between updates, saved.

    assets: columns of the market. surroundings: whatever the training depends on besides the agent and the version.
    After the block nothing is kept: the agent is trained.
    """
    settings = [agent.settings.model_dump_json(), str(agent.seed), json.dumps(surroundings, sort_keys=True)]
    run = fingerprint(["train", __version__, *settings])
    folder = home() / run
    _load(agent, assets, folder, run)
    if progress is not None:
        progress(len(agent.trace))
    with interrupt_held_back() as interrupted:

        def watch(number: int) -> None:
            if progress is not None:
                progress(number)
            # After the last update there is nothing left to interrupt but the writing.
            if interrupted.is_set() and number < agent.settings.first:
                raise Interruption(_save(agent, folder, run))

        agent.watch = watch
        try:
            yield
        finally:
            agent.watch = None
    shutil.rmtree(folder, ignore_errors=True)


def _save(agent: Agent, folder: Path, run: str) -> str:
    """What is told of it."""
    assert agent.begun is not None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / TRACE, json.dumps(agent.trace).encode())
        save_checkpoint(folder, agent.begun, len(agent.trace), run)
    except OSError as error:
        return f"nothing is saved, since {folder} cannot be written ({error.strerror})"
    return f"{len(agent.trace)} of {agent.settings.first} updates are saved"


def _load(agent: Agent, assets: int, folder: Path, run: str) -> None:
    """From the newest sound checkpoint; what is damaged does not count."""
    try:
        trace = json.loads((folder / TRACE).read_bytes())
    except (OSError, ValueError):
        return
    for path in reversed(checkpoints(folder)):
        number = int(path.stem.rpartition("-")[2])
        if not 0 < number <= len(trace):
            continue
        try:
            agent.go_on(path, run, assets, trace[:number])
        except CheckpointError:
            continue
        return
