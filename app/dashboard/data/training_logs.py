"""The logs of all training runs in one form: a row per iteration with the objective and every constraint.

experiments/<experiment>/<run>   a trainer's folder, live: a column for every metric of the algorithm
backtests/<id>                   the log of each agent and seed during a backtest
walks/<run>                      the same for a backtest in progress, or one that was stopped and can be resumed
agents/<id>                      agents that `train` saved
models/<id>                      models that a retrain registered

Agents train on log growth; their logs are shown as returns, the unit of their limit.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest.record import EVIDENCE_COLUMNS
from portfolio_sdpo.common.files import data_directory, is_alive
from portfolio_sdpo.common.numbers import share
from portfolio_sdpo.errors import RegistryError
from portfolio_sdpo.portfolio.agent_titles import make_agent_title

if TYPE_CHECKING:
    from portfolio_sdpo.registry import Registry

State = Literal["running", "finished", "failed", "stopped"]
MODELS = 100
"""The newest models that are listed."""


@dataclass(frozen=True)
class LogConstraint:
    """A constraint, and the columns of the log about it: risk_0, slack_0, price_0, regime_0 for the first."""

    name: str
    bound: float
    sense: Literal["<=", ">="]
    percent: bool = False


@dataclass(frozen=True)
class LogEntry:
    """A training run in the list."""

    key: str
    """Its place in the list above, which is unique."""
    title: str
    state: State
    changed: float
    """When it was last written to, in seconds since 1970."""
    file: Path | None
    """Its log; None for a model, whose log is in the registry."""
    facts: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    """Why it failed."""


@dataclass(frozen=True, eq=False)
class Log:
    """The log of a run so far."""

    frame: pd.DataFrame
    bounds: tuple[LogConstraint, ...]
    total: int | None
    """Number of iterations of the whole run, if it is known."""
    percent: bool
    """Whether the return is shown as a percentage."""

    @property
    def trained(self) -> bool:
        """Whether anything was trained: a policy that is shared by all universes is ready, and only decides."""
        return "deviation" not in self.frame or bool(self.frame["return"].notna().any())


def list_entries(registry: Registry | None = None) -> list[LogEntry]:
    """All runs: those in progress first, then the newest."""
    home = data_directory()
    found = [
        *_experiments(home / "experiments"),
        *_folders(home, "backtests"),
        *_folders(home, "agents"),
        *_walks(home / "walks"),
        *(_models(registry) if registry is not None else ()),
    ]
    return sorted(found, key=lambda entry: (entry.state != "running", -entry.changed, entry.key))


def read_version(entry: LogEntry) -> tuple[int, int]:
    """Changes whenever the log does."""
    if entry.file is None:
        return 0, 0
    try:
        status = entry.file.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def read_log(entry: LogEntry, registry: Registry | None = None) -> Log | None:
    """The log so far; None before the first iteration, or while the file cannot be read."""
    facts = entry.facts
    match entry.key.partition("/")[0]:
        case "experiments" if "iterations" in facts:
            return _trainer_log(entry)
        case "walks":
            rows = (_json(entry.file) or {}).get("trace")
            frame = None if not rows else pd.DataFrame(rows)
        case "models":
            assert registry is not None
            from portfolio_sdpo.portfolio.store import TRACE_FILE

            frame = pd.read_parquet(io.BytesIO(registry.model_parts(facts["model"])[TRACE_FILE]))
        case _:
            frame = _parquet(entry.file)
            if frame is not None and "strategy" in frame:
                frame = frame[(frame["strategy"] == facts["agent"]) & (frame["seed"] == facts["seed"])]
    return None if frame is None or frame.empty else _agent_log(frame.reset_index(drop=True), facts)


def _agent_log(trace: pd.DataFrame, facts: dict[str, Any]) -> Log:
    """The trace of an agent on price paths, in the columns of a trainer's log."""
    limit = facts.get("limit")
    bound = float(np.expm1(trace["bound"].iloc[-1]))
    name = "CVaR of the period's return"
    if limit is not None:
        name = f"CVaR of {limit['horizon']}-session returns, worst {share(limit['alpha'])}"
    columns = {
        "iteration": trace["iteration"].to_numpy(dtype=float),
        "return": np.expm1(trace["objective"].to_numpy(dtype=float)),
        "risk_0": np.expm1(trace["risk"].to_numpy(dtype=float)),
        "slack_0": trace["slack"].to_numpy(dtype=float),
        "regime_0": trace["regime"].astype(str).to_numpy(),
    }
    if "date" in trace:
        columns["date"] = pd.to_datetime(trace["date"]).dt.strftime("%Y-%m-%d").to_numpy()
    columns |= {name: trace[name].to_numpy(dtype=float) for name in EVIDENCE_COLUMNS if name in trace}
    return Log(
        pd.DataFrame(columns), (LogConstraint(name, bound, ">=", percent=True),), facts.get("total"), percent=True
    )


def _trainer_log(entry: LogEntry) -> Log | None:
    frame = _parquet(entry.file)
    if frame is None or frame.empty:
        return None
    bounds = tuple(
        # "variance of reward <= 9" without its bound, which the page shows beside it.
        LogConstraint(each["name"].partition(f" {each['sense']} ")[0], float(each["bound"]), each["sense"])
        for each in entry.facts["constraints"]
    )
    for index, each in enumerate(bounds):
        if f"slack_{index}" not in frame and f"risk_{index}" in frame:
            sign = 1.0 if each.sense == "<=" else -1.0
            frame[f"slack_{index}"] = sign * (each.bound - frame[f"risk_{index}"])
    frame["iteration"] += 1.0  # the trainer counts from 0, agents and readers from 1
    return Log(frame, bounds, entry.facts["iterations"], percent=False)


def _experiments(root: Path) -> Iterator[LogEntry]:
    for folder in (run for experiment in _list_folders(root) for run in _list_folders(experiment)):
        key = f"experiments/{folder.parent.name}/{folder.name}"
        config = _config(folder)
        if config is None:
            continue
        if "fingerprint" in config:
            with suppress(KeyError, TypeError):
                yield _run(folder, key, config)
        else:
            yield from _backtest(folder, key, config)


def _run(folder: Path, key: str, config: dict[str, Any]) -> LogEntry:
    """A trainer's folder."""
    settings = config["settings"]
    facts = {
        "algorithm": settings["algorithm"]["kind"],
        "seed": settings["seed"],
        "iterations": int(settings["iterations"]),
        "constraints": settings["problem"]["constraints"],
        "environment": settings["environment"],
        "start": config["start"],
        "version": config["version"],
    }
    message = ""
    state: State = "stopped"
    if is_alive(folder / ".alive"):
        state = "running"
    elif (folder / "final.json").exists():
        state = "finished"
    elif (folder / "failure.json").exists():
        state, message = "failed", str((_json(folder / "failure.json") or {}).get("message", ""))
    elif _rows(folder / "metrics.parquet") >= facts["iterations"]:
        state = "finished"
    title = f"{folder.parent.name} · {folder.name}"
    return LogEntry(
        key, title, state, _changed(folder / "metrics.parquet", folder), folder / "metrics.parquet", facts, message
    )


def _folders(home: Path, kind: str) -> Iterator[LogEntry]:
    """Backtests and agents, whose folders are written at once and complete."""
    for folder in _list_folders(home / kind):
        config = _config(folder)
        if config is None:
            continue
        key = f"{kind}/{folder.name}"
        if kind == "backtests":
            yield from _backtest(folder, key, config)
            continue
        with suppress(KeyError, TypeError):
            facts = _agent_facts(config["label"], config["seed"], config["settings"]) | {"total": config["updates"]}
            title = f"agent {folder.name} · {facts['title']}, seed {config['seed']}"
            yield LogEntry(key, title, "finished", _changed(folder), folder / "metrics.parquet", facts)


def _backtest(folder: Path, key: str, config: dict[str, Any]) -> Iterator[LogEntry]:
    """One entry for each agent and seed."""
    file = folder / "trace.parquet"
    if not file.exists():
        return
    with suppress(KeyError, TypeError):
        for agent in config["settings"]["agents"]:
            for seed in config["settings"]["seeds"]:
                facts = _agent_facts(agent["label"], seed, agent["settings"])
                title = f"backtest {folder.name} · {facts['title']}, seed {seed}"
                yield LogEntry(f"{key}/{agent['label']}/{seed}", title, "finished", _changed(folder), file, facts)


def _walks(root: Path) -> Iterator[LogEntry]:
    for folder in _list_folders(root):
        file = folder / "decisions.json"
        if file.exists():
            state: State = "running" if is_alive(folder / ".lock") else "stopped"
            facts = _progress_facts(str(file), _changed(file))
            who = f"{facts['title']}, seed {facts['seed']} · " if facts else ""
            title = f"backtest in progress · {who}{folder.name}"
            yield LogEntry(f"walks/{folder.name}", title, state, _changed(file), file, facts)


@lru_cache(maxsize=64)
def _progress_facts(file: str, changed: float) -> dict[str, Any]:
    """The agent of a backtest in progress; empty where that cannot be read."""
    try:
        agent = json.loads(Path(file).read_bytes())["agent"]
        return _agent_facts(agent["label"], agent["seed"], agent["settings"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _models(registry: Registry) -> Iterator[LogEntry]:
    with suppress(RegistryError):
        for model in registry.models()[:MODELS]:
            config = model.config
            facts = _agent_facts(config["label"], config["seed"], model.settings) | {"model": model.id}
            title = f"model {model.id} · {facts['title']}, seed {config['seed']}"
            yield LogEntry(f"models/{model.id}", title, "finished", model.created_at.timestamp(), None, facts)


def _agent_facts(label: str, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of an agent; `agent` is its label in the log, `title` how readers see it."""
    title = make_agent_title(label, settings)
    learner = settings["learner"]["kind"]
    return {"agent": label, "title": title, "learner": learner, "seed": int(seed), "limit": settings["limit"]}


def _list_folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []


def _changed(*paths_: Path) -> float:
    for path in paths_:
        with suppress(OSError):
            return path.stat().st_mtime
    return time.time()


def _config(folder: Path) -> dict[str, Any] | None:
    try:
        changed = (folder / "config.json").stat().st_mtime_ns
    except OSError:
        return None
    return _known_config(str(folder), changed)


@lru_cache(maxsize=4096)
def _known_config(folder: str, changed: int) -> dict[str, Any] | None:
    found = _json(Path(folder, "config.json"))
    return found if isinstance(found, dict) else None


def _json(path: Path | None) -> Any:
    """The content of a file; None if it is missing or not JSON."""
    try:
        return None if path is None else json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _rows(path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return 0


def _parquet(path: Path | None) -> pd.DataFrame | None:
    """The table in a file; None if it is missing or unreadable at the moment."""
    import pyarrow as pa

    try:
        return None if path is None else pd.read_parquet(io.BytesIO(path.read_bytes()))
    except (OSError, pa.ArrowException, ValueError):
        return None
