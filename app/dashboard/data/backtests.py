"""The folders of backtests, which never change once they are written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from portfolio_sdpo.errors import RunError

if TYPE_CHECKING:
    import pandas as pd

    from portfolio_sdpo.backtest.record import Record, StrategyGroup

CACHED = 8
"""Backtests whose tables stay in memory."""


@dataclass(frozen=True)
class Backtest:
    """A backtest in a list."""

    folder: Path
    made: int
    """Modification time of the folder, in nanoseconds; with its path it is the key of the cache."""
    config: dict[str, Any] | None
    """The content of `config.json`; None if it cannot be read."""

    @property
    def id(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def title(self) -> str:
        """For a list: time, strategies, prices, days, and the end of the id, which tells results apart."""
        if self.config is None:
            return f"{self.id} (damaged)"
        from portfolio_sdpo.portfolio.agent_titles import make_agent_title

        settings, data = self.config["settings"], self.config["data"]
        agents = [make_agent_title(agent["label"], agent["settings"]) for agent in settings["agents"]]
        count = len(settings["strategies"])
        who = [*agents, f"{count} benchmark{'s' * (count > 1)}"] if count else agents
        made = datetime.fromisoformat(self.config["created_at"])
        prices = data["snapshot"] or data["source"]
        days = " to ".join(str(settings[edge] or data[also]) for edge, also in (("start", "first"), ("end", "last")))
        return f"{made:%Y-%m-%d %H:%M} · {' + '.join(who)} · {prices} · {days} · {self.id[-8:]}"


def list_backtests() -> list[Backtest]:
    """All backtests in the data directory, the newest first; damaged ones are among them."""
    from portfolio_sdpo.backtest.record import list_records

    return [Backtest(folder, made := _read_mtime(folder), _config(str(folder), made)) for folder in list_records()]


@dataclass(frozen=True, eq=False)
class OpenBacktest:
    """A backtest as the pages use it; shared between visitors, so it must not be modified."""

    backtest: Backtest
    record: Record
    groups: list[StrategyGroup]
    """Strategies with all their seeds."""
    main: StrategyGroup
    equity: dict[tuple[str, int | None], pd.DataFrame]
    """Rows by strategy and seed."""
    weights: dict[tuple[str, int | None], pd.DataFrame]
    shield: dict[tuple[str, int | None], pd.DataFrame]
    """Rows by strategy and seed, of what passed the shield."""
    trades: dict[tuple[str, int | None], pd.DataFrame]
    """Rows by strategy and seed."""
    assets: list[str]

    @property
    def horizon(self) -> int:
        """Sessions of a period to which the CVaR limit applies."""
        return int(self.record.config["settings"]["limit"]["horizon"])


def open_backtest(backtest: Backtest) -> OpenBacktest:
    """A backtest with its tables by strategy."""
    return _open_backtest(str(backtest.folder), backtest.made, backtest)


def _read_mtime(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0  # deleted since it was listed; reading it reports that


@st.cache_resource(max_entries=1000, show_spinner=False)
def _config(folder: str, made: int) -> dict[str, Any] | None:
    from portfolio_sdpo.backtest.record import read_config

    try:
        config = read_config(Path(folder))
        Backtest(Path(folder), made, config).title  # noqa: B018 - a config without a title is damaged
    except (RunError, KeyError, TypeError, ValueError):
        return None
    return config


@st.cache_resource(max_entries=CACHED, show_spinner="Reading the backtest")
def _record(folder: str, made: int) -> Record:
    from portfolio_sdpo.backtest.record import read_record

    return read_record(Path(folder))


@st.cache_resource(max_entries=CACHED, show_spinner=False)
def _open_backtest(folder: str, made: int, _backtest: Backtest) -> OpenBacktest:
    from portfolio_sdpo.backtest.record import KEYS, group_by_strategy, select_main, split_by_track

    record = _record(folder, made)
    found = group_by_strategy(record.metrics, record.config)
    assets = [str(column) for column in record.weights.columns if column not in KEYS]
    return OpenBacktest(
        _backtest,
        record,
        found,
        select_main(found),
        split_by_track(record.equity),
        split_by_track(record.weights),
        {} if record.shield is None else split_by_track(record.shield),
        split_by_track(record.trades),
        assets,
    )
