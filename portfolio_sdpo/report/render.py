"""The report of a backtest, or of returns of the user's own: one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from portfolio_sdpo.backtest.record import (
    KEYS,
    Record,
    StrategyGroup,
    group_by_strategy,
    select_main,
    split_by_track,
)
from portfolio_sdpo.common.plugins import require_extra
from portfolio_sdpo.prices.frequency import name_session
from portfolio_sdpo.report import figures, rolling, through_time
from portfolio_sdpo.report.comparisons import (
    find_index,
    render_rivals,
    render_superiority,
    render_years,
    select_rivals,
)
from portfolio_sdpo.report.contributions import describe_contributions, draw_contributions, find_contributions
from portfolio_sdpo.report.looks import hidden_at_first
from portfolio_sdpo.report.page import render_figure, render_page, render_panel, render_section
from portfolio_sdpo.report.sections import (
    describe_periods,
    render_all_figures,
    render_cards,
    render_headline,
    render_lead,
    render_promises,
    render_provenance,
    render_remarks,
    render_shielding,
    render_subtitle,
    render_today,
    render_training,
)

if TYPE_CHECKING:
    import pandas as pd

Tables = Mapping[tuple[str, int | None], "pd.DataFrame"]


def render_report(record: Record) -> str:
    """The report: one HTML file that needs nothing but itself.

    In the order people read: headline figures against rivals with intervals, wealth, drawdown, weights, what to hold
    today, the course through time, the distribution of the returns with promised and realised CVaR, the constraint in
    training, months, settings and data. What a record does not have is left out: returns of the user's own come without
    weights. Everything is drawn from the record, so a report can be made again from a folder:
    `render_report(read_record(folder))`.
    """
    return _Report(record).render()


class _Report:
    """The sections of a report, and the figures that they have asked for."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.found = group_by_strategy(record.metrics, record.config)
        self.main = select_main(self.found)
        self.tracks: Tables = split_by_track(record.equity)
        self.weights: Tables = split_by_track(record.weights)
        self.keys = {group.name: f"s{number}" for number, group in enumerate(self.found)}
        self.specs: dict[str, Any] = {}

    def render(self) -> str:
        """The whole page."""
        record, found, main = self.record, self.found, self.main
        if "returns" in record.config:
            title = f"Returns of {main.title}"
        else:
            title = f"Backtest of {main.title}" if main.kind != "benchmark" else "Backtest of benchmark strategies"
        body = [
            f"<header><h1>{escape(title)}</h1><p class='sub'>{render_subtitle(record, found)}</p></header>",
            render_lead(found, main),
            render_cards(main, found),
            render_section(
                "Results",
                render_headline(found, record.config)
                + render_all_figures(found)
                + render_rivals(found)
                + render_superiority(record)
                + render_shielding(found),
            ),
            *self._make_curves(),
            *self._make_weights(),
            self._make_course(),
            self._make_risk(),
            *self._make_training(),
            render_section(
                "Months",
                self._panels("months", lambda group: through_time.render_months(self.tracks[group.key], group.title)),
                self._select("months"),
            ),
            render_section("Remarks", render_remarks(record, found)),
            render_section("Settings and data", render_provenance(record)),
        ]
        drawn = {"specs": self.specs, "hidden": [escape(name) for name in hidden_at_first(found)]}
        data = {"config": record.config, "metrics": record.metrics}
        return render_page(title, "\n".join(body), drawn, data, _plotly_js())

    def _make_curves(self) -> list[str]:
        """Wealth and drawdown of all strategies."""
        self.specs["equity"] = figures.draw_curves(self.tracks, self.found, "wealth", percent=False)
        self.specs["drawdown"] = figures.draw_curves(self.tracks, self.found, "drawdown", percent=True)
        return [
            render_section(
                "Wealth",
                figures.render_line_legend(self.found)
                + render_figure("equity", "Wealth over time, starting at 1, after fees."),
                "<label><input type='checkbox' id='log'> logarithmic scale</label>",
            ),
            render_section("Drawdown", render_figure("drawdown", "Fall of wealth from its highest so far.")),
        ]

    def _make_weights(self) -> list[str]:
        """What was held, and what is to be held after the last close."""
        if not self.weights:
            return []
        assets = [column for column in self.record.weights.columns if column not in KEYS]
        drawn = {group.name: figures.draw_weights(self.weights[group.key], assets) for group in self.found}
        self.specs["weights"] = {self.keys[name]: spec for name, (spec, _) in drawn.items()}
        legends = self._panels("weights", lambda group: figures.render_area_legend(drawn[group.name][1]))
        caption = figures.describe_weights(self.found[0].median["sessions"] + 1)
        return [
            render_section("Weights", legends + render_figure("weights", caption), self._select("weights")),
            render_section("Today’s weights", render_today(self.found)),
        ]

    def _make_course(self) -> str:
        """One strategy through time: exposure, rolling risk, years, drawdowns, trading; and all of them in crises."""
        shields = split_by_track(self.record.shield) if self.record.shield is not None else {}
        content = ""
        if self.weights:
            self._draw(
                "time-exposure",
                lambda group: through_time.draw_exposure(self.weights[group.key], shields.get(group.key)),
            )
            content += render_figure("time-exposure", through_time.describe_exposure(self.record.shield))
        self._draw("time-risk", lambda group: through_time.draw_rolling_risk(self.tracks[group.key], group.median))
        if self.specs["time-risk"]:
            content += render_figure("time-risk", through_time.describe_risk(self.main.median))
        self._draw("time-measures", self._draw_measures)
        if self.specs["time-measures"]:
            # Whichever strategy is selected, so that one caption is right for all of them.
            index = next(filter(None, (find_index(self.found, group.name) for group in self.found)), None)
            caption = rolling.describe_measures(
                self.tracks[self.main.key], self.main.median, None if index is None else index.title
            )
            content += render_figure("time-measures", caption)
        content += self._panels("time", self._describe_course)
        if self.weights:
            trades = split_by_track(self.record.trades)
            self._draw("time-contributions", lambda group: self._draw_contributions(group, trades.get(group.key)))
            if self.specs["time-contributions"]:
                caption = describe_contributions(self.main.median["promise"])
                content += render_figure("time-contributions", caption)
            self._draw("time-trading", lambda group: through_time.draw_trading(self.tracks[group.key]))
            content += render_figure("time-trading", through_time.TRADING_CAPTION)
        content += through_time.render_stress_table(self.found, self.tracks, self.main.median["promise"]["horizon"])
        return render_section("Through time", content, self._select("time"))

    def _draw_measures(self, group: StrategyGroup) -> Any:
        index = find_index(self.found, group.name)
        beside = None if index is None else self.tracks[index.key]
        return rolling.draw_rolling_measures(self.tracks[group.key], group.median, beside)

    def _draw_contributions(self, group: StrategyGroup, trades: pd.DataFrame | None) -> Any:
        weights = self.weights[group.key]
        found = find_contributions(self.tracks[group.key], weights, trades, group.median["promise"])
        return None if found is None else draw_contributions(found, weights)

    def _describe_course(self, group: StrategyGroup) -> str:
        """Calendar years beside a rival's, and the worst drawdowns."""
        beside = [each for each in (*select_rivals(self.found, self.main), self.main) if each.name != group.name]
        rival = (beside[0].title, self.tracks[beside[0].key]) if beside else None
        rows, weights = self.tracks[group.key], self.weights.get(group.key)
        return through_time.render_year_table(
            rows, weights, group.median, group.title, rival
        ) + through_time.render_drawdowns(
            rows, group.title, name_session(group.median.get("sessions_per_year")), buttons=True
        )

    def _make_risk(self) -> str:
        """The distribution of the returns, and what became of the promise."""
        edges = {
            group.name: figures.find_bin_edges(self.tracks[group.key], group.median["promise"]) for group in self.found
        }
        hidden = set(hidden_at_first(self.found))
        by_year = through_time.draw_cvar_by_year([group for group in self.found if group.name not in hidden])
        words = render_promises(self.found)
        if by_year is not None:
            self.specs["cvar"] = by_year
            words += render_figure("cvar", through_time.CVAR_CAPTION)
        words += render_years(self.found)
        if any(each is None for each in edges.values()):
            return render_section("Promised and realised risk", words)
        self._draw(
            "distribution",
            lambda group: figures.draw_distribution(self.tracks[group.key], group.median["promise"], edges[group.name]),
        )
        caption = (
            f"Returns over {describe_periods(self.main.median)}, every such period, overlapping; orange where a loss "
            "exceeds the limit. The limit binds the mean of the tail, not each period; the shaded band is the interval "
            "of the CVaR."
        )
        control = self._select("distribution")
        return render_section("Promised and realised risk", render_figure("distribution", caption) + words, control)

    def _make_training(self) -> list[str]:
        """The constraint as the agents estimated it; nothing where none was trained, as a shared policy."""
        traces = split_by_track(self.record.trace) if self.record.trace is not None else {}
        traced = [group for group in self.found if group.key in traces and traces[group.key]["risk"].notna().any()]
        if not traced:
            return []
        self.specs["trace"] = {self.keys[group.name]: figures.draw_trace(traces[group.key]) for group in traced}
        caption = (
            "The constrained risk as the agent estimated it, in its own unit, by day of decision; the band spans the "
            "day's iterations, and a cross marks a day on which one of them was outside the bound."
        )
        table = render_training([(group, traces[group.key]) for group in traced])
        control = self._select("trace", traced)
        return [render_section("The constraint in training", render_figure("trace", caption) + table, control)]

    def _draw(self, name: str, make: Callable[[StrategyGroup], Any]) -> None:
        """A figure for every strategy of which there is one."""
        drawn = {self.keys[group.name]: make(group) for group in self.found}
        self.specs[name] = {key: spec for key, spec in drawn.items() if spec is not None}

    def _panels(self, part: str, render: Callable[[StrategyGroup], str]) -> str:
        """The content of every strategy, of which one is shown."""
        return "".join(
            render_panel(part, self.keys[group.name], group is self.main, render(group)) for group in self.found
        )

    def _select(self, part: str, among: Sequence[StrategyGroup] | None = None) -> str:
        """The control that selects the strategy of a part; at first the main one, where it is among them."""
        options = self.found if among is None else among
        chosen = self.main if self.main in options else options[0]
        items = "".join(
            f"<option value='{self.keys[group.name]}'{' selected' if group is chosen else ''}>"
            f"{escape(group.title)}</option>"
            for group in options
        )
        return f"<label>Strategy <select data-detail='{part}'>{items}</select></label>"


def _plotly_js() -> str:
    require_extra("A report", "plotly", "backtest")
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
