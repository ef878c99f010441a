"""The result of a backtest, for people: it prints itself, has its figures as frames, and writes its folder and report.

result = run_backtest(BacktestSettings(start="2019-01-02", end="2019-12-31", fee_bps=5))
print(result)          # the table that the command line shows
result.report_path     # the HTML page
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portfolio_sdpo.backtest import record as records
from portfolio_sdpo.backtest.entries import Progress
from portfolio_sdpo.backtest.record import KEYS, Record, split_by_track
from portfolio_sdpo.backtest.run import Backtest, BacktestSettings
from portfolio_sdpo.backtest.simulate import Strategy
from portfolio_sdpo.common.files import write_atomically
from portfolio_sdpo.errors import BacktestError
from portfolio_sdpo.report.render import render_report

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

        if self.record.weights.empty:
            raise BacktestError("These are returns of your own, which do not tell what was held; look at `returns`.")
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
