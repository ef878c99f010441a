"""The result of a backtest, for people: it prints itself, has its figures as frames, and writes its folder and report.

result = run_backtest(BacktestSettings(start="2019-01-02", end="2019-12-31", fee_bps=5))
print(result)          # the table that the command line shows
result.report_path     # the HTML page
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portfolio_sdpo.backtest import record as records
from portfolio_sdpo.backtest.entries import Progress
from portfolio_sdpo.backtest.record import (
    KEYS,
    Record,
    StrategyGroup,
    group_by_strategy,
    select_main,
    split_by_track,
)
from portfolio_sdpo.backtest.run import Backtest, BacktestSettings
from portfolio_sdpo.backtest.simulate import Strategy
from portfolio_sdpo.common.files import write_atomically
from portfolio_sdpo.common.plugins import require_extra
from portfolio_sdpo.errors import BacktestError
from portfolio_sdpo.report import figures
from portfolio_sdpo.report.comparisons import against, superiority, years
from portfolio_sdpo.report.page import figure, page, panel, section
from portfolio_sdpo.report.sections import (
    all_figures,
    cards,
    headline,
    lead,
    monthly,
    periods_of,
    promises,
    provenance,
    remarks,
    shielding,
    subtitle,
    today,
    training,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class BacktestResult:
    """What came out of a backtest; `print` shows the table of the command line.

    Attributes
    ----------
    returns : DataFrame of shape (n_sessions, n_tracks)
        Simple returns per session, net of fees; a strategy with the shield is a track "... + shield".
    wealth : DataFrame of shape (n_sessions + 1, n_tracks)
        Wealth after fees, 1 at the start.
    weights : DataFrame of shape (n_sessions + 1, n_tracks * (1 + n_tickers))
        Weights after the trade of each date, columns (strategy, asset), CASH first.
    metrics : DataFrame of shape (n_tracks, n_figures)
        `cagr`, `volatility`, `sharpe`, `max_drawdown`, `cvar_window`, `turnover`, `cost`, `kept_limit` and more.
    record : Record
        All tables and figures, as they are written to disk.

    Examples
    --------
    >>> from portfolio_sdpo import backtest, load_prices
    >>> result = backtest(load_prices("sample"), ["equal-weight", "cash"], start="2021-09-01", intervals=False)
    >>> list(result.returns), result.weights["cash"].columns[0]
    (['equal-weight', 'cash'], 'CASH')
    >>> print(str(result).splitlines()[0])
    2021-09-01 to 2021-10-14, 30 sessions
    >>> bool(result.metrics.loc["cash", "kept_limit"])
    True
    """

    record: Record
    """All tables and figures, as they are written to disk."""
    folder: Path | None = None
    """Where it was written; None before that."""

    @property
    def returns(self) -> pd.DataFrame:
        """Simple returns per session, net of fees: dates × strategies; "sdpo, seed 1" where there are several seeds."""
        wide = self._wide(self.record.equity, "return")
        return wide.iloc[1:]

    @property
    def wealth(self) -> pd.DataFrame:
        """Wealth after fees, 1 at the start: dates × strategies."""
        return self._wide(self.record.equity, "wealth")

    @property
    def weights(self) -> pd.DataFrame:
        """Weights after the trade of each date: dates × (strategy, asset), CASH first."""
        import pandas as pd

        titles = self._titles()
        frames = {
            titles[key]: rows.set_index("date").drop(columns=["strategy", "seed"])
            for key, rows in split_by_track(self.record.weights).items()
        }
        return pd.concat(frames, axis=1, names=["strategy", "asset"])

    @property
    def metrics(self) -> pd.DataFrame:
        """Figures: strategies × names, as in `Statistics`, `growth_at_same_risk`, `cvar_limit` and `kept_limit`."""
        import pandas as pd

        titles = self._titles()
        rows: dict[str, dict[str, Any]] = {}
        for record in self.record.metrics:
            figures = {
                name: value
                for name, value in record.items()
                if name not in (*KEYS, "shield", "same_risk")
                and (value is None or isinstance(value, int | float | str))
            }
            same_risk = record.get("same_risk") or {}
            promise = {"growth_at_same_risk": same_risk.get("growth")} if "same_risk" in record else {}
            promise |= {"cvar_limit": record["promise"]["bound"], "kept_limit": record["promise"]["kept"]}
            rows[titles[record["strategy"], record["seed"]]] = figures | promise
        frame = pd.DataFrame.from_dict(rows, orient="index")
        frame.index.name = "strategy"
        return frame

    @property
    def report_path(self) -> Path:
        """The HTML page in the folder."""
        if self.folder is None:
            raise BacktestError("This backtest is not written yet: call write(), or report(path) for the page alone.")
        return self.folder / records.REPORT

    def report(self, path: str | Path) -> Path:
        """Write the HTML page alone, which needs nothing but itself; returns its path."""
        path = Path(path)
        try:
            write_atomically(path, render_report(self.record).encode())
        except OSError as error:
            raise BacktestError(f"{path} cannot be written ({error.strerror}): choose another place.") from None
        return path

    def write(self, folder: str | Path | None = None) -> BacktestResult:
        """Write the folder as a whole, by default `backtests/<id>` in the data directory; returns the result there."""
        folder = Path(folder) if folder else records.FOLDERS.new_folder(self.record.config["id"])
        records.write_record(self.record, render_report(self.record), folder)
        return BacktestResult(self.record, folder)

    def __str__(self) -> str:
        from rich.console import Console

        from portfolio_sdpo.report.terminal import render_backtest

        text = io.StringIO()
        Console(file=text, width=100, color_system=None).print(render_backtest(self.record))
        return text.getvalue().rstrip()

    def _titles(self) -> dict[tuple[str, int | None], str]:
        """What each track is called: its strategy, with the seed where there are several."""
        keys = [(record["strategy"], record["seed"]) for record in self.record.metrics]
        names = [name for name, _ in keys]
        return {(name, seed): f"{name}, seed {seed}" if names.count(name) > 1 else name for name, seed in keys}

    def _wide(self, table: pd.DataFrame, column: str) -> pd.DataFrame:
        import pandas as pd

        titles = self._titles()
        tracks = split_by_track(table)
        frame = pd.DataFrame({titles[key]: rows.set_index("date")[column] for key, rows in tracks.items()})
        return frame.rename_axis(columns="strategy")


def run_backtest(
    settings: BacktestSettings,
    folder: Path | None = None,
    progress: Progress | None = None,
    agents: Sequence[Strategy] = (),
    *,
    jobs: int = 1,
    restart: bool = False,
) -> BacktestResult:
    """Run the backtest that the settings describe and write its folder: by default `backtests/<id>`.

    `agents` are those that the settings declare, one object per label and seed. With `jobs` > 1 that many processes
    share the strategies. What was saved of the same backtest is continued, unless `restart` deletes it first.
    """
    records.FOLDERS.check_free(folder or records.FOLDERS.new_folder("new"))
    backtest = Backtest(settings, agents, restart=restart)
    result = BacktestResult(backtest.run(progress, jobs)).write(folder)
    backtest.discard()
    return result


def render_report(record: Record) -> str:
    """The report: one HTML file that needs nothing but itself.

    In the order people read: headline figures against benchmarks with intervals, equity, drawdown, weights, what to
    hold today, the distribution of the returns with promised and realised CVaR, the constraint in training, months,
    settings and data. Everything is drawn from the record, so a report can be made again from a folder:
    `render_report(read_record(folder))`.
    """
    found = group_by_strategy(record.metrics, record.config)
    main = select_main(found)
    settings = record.config["settings"]
    horizon = int(settings["limit"]["horizon"])
    tracks, weights = split_by_track(record.equity), split_by_track(record.weights)
    traces = split_by_track(record.trace) if record.trace is not None else {}
    keys = {group.name: f"s{number}" for number, group in enumerate(found)}
    assets = [column for column in record.weights.columns if column not in KEYS]

    title = f"Backtest of {main.title}" if main.kind != "benchmark" else "Backtest of benchmark strategies"

    specs: dict[str, Any] = {
        "equity": figures.curves(tracks, found, "wealth", percent=False),
        "drawdown": figures.curves(tracks, found, "drawdown", percent=True),
        "weights": {},
        "distribution": {},
        "trace": {},
    }
    legends = []
    edges = figures.bin_edges(tracks, found, horizon)
    for group in found:
        key = keys[group.name]
        specs["weights"][key], areas = figures.weights(weights[group.key], assets)
        legends.append(panel("weights", key, key == keys[main.name], figures.area_legend(areas)))
        if edges is not None:
            specs["distribution"][key] = figures.distribution(tracks[group.key], group.median["promise"], edges)
        if group.key in traces and traces[group.key]["risk"].notna().any():  # a shared policy trains nothing
            specs["trace"][key] = figures.trace(traces[group.key])

    body = [
        f"<header><h1>{escape(title)}</h1><p class='sub'>{subtitle(record, found)}</p></header>",
        lead(found, main),
        cards(main, found),
        section(
            "Results",
            headline(found, record.config)
            + all_figures(found)
            + against(found)
            + superiority(record)
            + shielding(found),
        ),
        section(
            "Wealth",
            figures.line_legend(found) + figure("equity", "Wealth over time, starting at 1, after fees."),
            "<label><input type='checkbox' id='log'> logarithmic scale</label>",
        ),
        section("Drawdown", figure("drawdown", "Fall of wealth from its highest so far.")),
        section(
            "Weights",
            "".join(legends) + figure("weights", figures.weights_caption(found[0].median["sessions"] + 1)),
            _select("weights", found, keys, main),
        ),
        section("Today’s weights", today(found)),
    ]
    if edges is not None:
        caption = (
            f"Returns over {periods_of(main.median)}, every such period, overlapping; orange where a loss exceeds the "
            "limit. The limit binds the mean of the tail, not each period; the shaded band is the interval of the CVaR."
        )
        drawing = figure("distribution", caption)
        body.append(
            section(
                "Promised and realised risk",
                drawing + promises(found) + years(found),
                _select("distribution", found, keys, main),
            )
        )
    else:
        body.append(section("Promised and realised risk", promises(found) + years(found)))
    if specs["trace"]:
        traced = [group for group in found if keys[group.name] in specs["trace"]]
        caption = (
            "The constrained risk as the agent estimated it, in its own unit, by day of decision; the band spans the "
            "day's iterations, and a cross marks a day on which one of them was outside the bound."
        )
        table = training([(group, traces[group.key]) for group in traced])
        first = main if main in traced else traced[0]
        body.append(
            section(
                "The constraint in training", figure("trace", caption) + table, _select("trace", traced, keys, first)
            )
        )
    months = "".join(
        panel("months", keys[group.name], group is main, monthly(tracks[group.key], group.title)) for group in found
    )
    body += [
        section("Months", months, _select("months", found, keys, main)),
        section("Remarks", remarks(record, found)),
        section("Settings and data", provenance(record)),
    ]
    data = {"config": record.config, "metrics": record.metrics}
    drawn = {"specs": specs, "hidden": [escape(name) for name in figures.hidden_at_first(found)]}
    return page(title, "\n".join(body), drawn, data, _plotly_js())


def _select(part: str, found: Sequence[StrategyGroup], keys: dict[str, str], chosen: StrategyGroup) -> str:
    options = "".join(
        f"<option value='{keys[group.name]}'{' selected' if group is chosen else ''}>{escape(group.title)}</option>"
        for group in found
    )
    return f"<label>Strategy <select data-detail='{part}'>{options}</select></label>"


def _plotly_js() -> str:
    require_extra("A report", "plotly", "backtest")
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
