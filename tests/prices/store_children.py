"""Run by test_snapshots.py: work on a store in children that are killed, or that all write at once.

Everything is imported before the first fork, and this process itself touches no snapshot, so the children are cheap
and start clean. `kill`: the job is done again and again, the n-th time killed just before its n-th change of the store:
whatever makes, renames, removes or locks a file, opens one for writing, starts to write, or syncs a folder.
"""

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from portfolio_sdpo.prices import snapshots
from portfolio_sdpo.prices.cleaning import CleanPrices, Report
from portfolio_sdpo.prices.ingest import fetch_snapshot, import_snapshot
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.prices.sources import SOURCES
from portfolio_sdpo.prices.update import update_snapshot

CHANGES = ("os.mkdir", "os.rename", "os.remove", "fcntl.flock")
"""Audit events; Python raises them just before the deed."""


def prices(rows: int, seed: int = 0) -> pd.DataFrame:
    values = np.random.default_rng(seed).uniform(50, 60, (100, 8)).round(2)[:rows]
    return to_wide(pd.DataFrame(values, index=pd.bdate_range("2020-01-01", periods=rows), columns=[*"ABCDEFGH"]))


class Memory:
    """A source with as many rows as it is told."""

    name: ClassVar[str] = "memory"
    rows: ClassVar[int] = 80

    def settings(self):
        return {}

    def fetch(self, tickers, start, end, progress=None):
        frame = prices(Memory.rows)[list(tickers)]
        return Prices(frame[frame.index >= pd.Timestamp(start)] if start else frame, "close", "unknown")


class Noon(datetime):
    """A clock that stands still, so that the manifests of every run have the same hash and it takes the same steps.

    Otherwise a hash that begins like another one now and then spares a step, the making of a folder.
    """

    @classmethod
    def now(cls, tz=None):
        return datetime(2023, 1, 3, 12, tzinfo=UTC)


def in_child(work: Callable[[], object]) -> int:
    """Do the work in a child; returns how it ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def killed_at(step: int, root: Path, job: Callable[[], object]) -> None:
    steps = count()

    def watch(event: str, arguments: tuple) -> None:
        path = arguments[0] if arguments else None
        ours = isinstance(path, int) or str(path).startswith(str(root))
        writes = event == "open" and (arguments[2] & (os.O_WRONLY | os.O_RDWR) or Path(str(path)).is_dir())
        changes = event in CHANGES or writes
        if ours and changes and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    job()


def kill(job: str, folder: Path) -> list[dict]:
    states: list[dict] = []
    SOURCES.register("memory", Memory)  # type: ignore[arg-type]
    snapshots.datetime = Noon  # type: ignore[misc]
    file, template, root = folder / "prices.csv", folder / "template", folder / "store"

    def work(store: Store, rows: int, name: str) -> None:
        Memory.rows = rows
        if name == "import":
            prices(rows).to_csv(file)
            import_snapshot(file, "n", calendar=None, store=store)
        elif name == "fetch":
            fetch_snapshot("memory", [*"ABCDEFGH"], None, None, "n", calendar=None, store=store)
        else:
            update_snapshot("n", store=store)

    def look() -> None:
        store = Store(root)
        sizes = {80: "old", 90: "new"}
        state = {
            "sound": not any(check.problem for check in store.verify()),
            "current": sizes[store.open("n").manifest.rows],
        }
        if len(states) % 3 == 0:
            work(store, 90, job)
            state["again"] = sizes[store.open("n").manifest.rows]
        (folder / "state.json").write_text(json.dumps(state))

    assert in_child(lambda: work(Store(template), 80, "fetch" if job == "update" else job)) == 0
    ended = -1
    while ended != 0:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(template, root)
        ended = in_child(lambda: killed_at(len(states), root, lambda: work(Store(root), 90, job)))
        assert in_child(look) == 0
        states.append(json.loads((folder / "state.json").read_text()))
        assert ended == 0 or os.WTERMSIG(ended) == signal.SIGKILL
    return states


def rivals(root: Path) -> list[int]:
    def save(name: str, frame: pd.DataFrame) -> None:
        cleaned, request = CleanPrices(frame, Report(), {}), Request(source="memory", calendar=None)
        assert Store(root).save(name, cleaned, Prices(frame, "close", "unknown"), request).new

    def work(rival: int) -> None:
        for version in range(6):
            save("common", prices(50, seed=100 * rival + version))
            save(f"own-{rival}", prices(50, seed=version))

    children = []
    for rival in range(4):
        child = os.fork()
        if child == 0:
            try:
                work(rival)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return [os.waitpid(child, 0)[1] for child in children]


if __name__ == "__main__":
    arguments = sys.argv[1:]
    result = kill(arguments[1], Path(arguments[2])) if arguments[0] == "kill" else rivals(Path(arguments[1]))
    sys.stdout.write(json.dumps(result))
