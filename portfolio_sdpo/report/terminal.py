"""A backtest, or a trained agent, as text for the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.backtest.promise import count_years
from portfolio_sdpo.backtest.record import Record, StrategyGroup, group_by_strategy, select_main
from portfolio_sdpo.common.numbers import Format, number, percent, share, span
from portfolio_sdpo.portfolio.agent_titles import make_agent_title
from portfolio_sdpo.prices.frequency import describe_sessions, name_session
from portfolio_sdpo.report.comparisons import describe_same_risk
from portfolio_sdpo.report.formats import judge_promise

if TYPE_CHECKING:
    from portfolio_sdpo.portfolio.store import TrainedAgent

MAX_WEIGHTS = 12
"""How many weights are shown; `--json` has all of them."""


def render_backtest(record: Record) -> RenderableType:
    """The table of results and today's weights."""
    found = group_by_strategy(record.metrics, record.config)
    main = select_main(found)
    limit = record.config["settings"]["limit"]
    figures = main.median
    unit = name_session(figures.get("sessions_per_year"))
    sessions = describe_sessions(figures["sessions"], figures.get("sessions_per_year"))
    title = Text(f"{figures['start']} to {figures['end']}, {sessions}", style="bold")
    # Fits into 80 columns.
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("strategy", overflow="fold")
    growth = "CAGR" if figures["cagr"] is not None else "return"
    for heading in ("wealth", growth, "Sharpe", "drawdown", f"CVaR {limit['horizon']}", "same risk", "cost"):
        table.add_column(heading, justify="right", no_wrap=True)
    for group in found:
        table.add_row(*_cells(group), style="bold" if group is main else "")
    legend = (
        f"CVaR: mean of the worst {share(limit['alpha'])} of {limit['horizon']}-{unit} returns, and of the worst "
        f"calendar year; ✓ at or above the limit of {percent(limit['bound'])}, ? too few periods to tell."
    )
    if growth == "return":
        legend += " Return and growth: over the whole track, which is shorter than a year."
    reference = next((other["reference"] for group in found if (other := group.median.get("same_risk"))), None)
    if reference is not None:
        legend += f" Same risk: log growth above that of {reference} once both have the same CVaR."
    if any(len(group.records) > 1 for group in found):
        legend += " Of several seeds, the one in the middle by final wealth."
    return Lines(
        title,
        Text(""),
        table,
        Text(""),
        Text(legend, style="dim"),
        Text(""),
        *_headline(main),
        *_against(main),
        *_latest(main),
    )


def render_trained_agent(trained: TrainedAgent) -> RenderableType:
    """What an agent that was trained up to today would hold, and what it promises."""
    config = trained.config
    today, limit = config["today"], config["settings"]["limit"]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("its own", format_weights(today["weights"]))
    table.add_row("shielded", format_weights(today["shielded"]))
    on_scenarios = "" if today["promised"] is None else f"promised on its scenarios {percent(today['promised'])}; "
    promise = (
        f"CVaR, the mean of the worst {share(limit['alpha'])} of {limit['horizon']}-session returns: "
        f"limit {percent(limit['bound'])}; {on_scenarios}"
        f"as the shield counts it {percent(today['past'])}, shielded {percent(today['past_shielded'])}."
    )
    more = [today["evidence"]["sentence"]] if "evidence" in today else []
    if today["removed"]:
        more.append(f"The shield moved to cash what has too little history: {', '.join(today['removed'])}.")
    more += today.get("findings", [])
    if not today["meets"]:
        more.append("Not even cash meets the limit.")
    heading = Text(
        f"Weights of {make_agent_title(config['label'], config['settings'])} "
        f"{describe_trade(config['as_of'], config['settings'].get('execution'))}",
        style="bold",
    )
    return Lines(heading, table, Text(""), Text(promise), *map(Text, more))


def _cells(group: StrategyGroup) -> Iterable[str | Text]:
    record = group.median
    cvar = Text(_write(record["cvar_window"], percent))
    if record["promise"]["kept"] is not None:
        mark, style = {True: (" ✓", "green"), False: (" ✗", "red"), None: (" ?", "dim")}[
            judge_promise(record["promise"])
        ]
        cvar.append(mark, style=style)
    worst = count_years(record.get("cvar_by_year", {}), record["promise"]["bound"])
    if worst is not None and worst.years > 1:
        cvar.append(f"\n{worst.worst_year} {percent(worst.worst)}", style="dim")
    name = Text(group.title)
    if len(group.records) > 1:
        name.append(f"\n{len(group.records)} seeds", style="dim")
    return (
        name,
        _write(record["final_wealth"], number),
        _write(record.get("total_return") if record["cagr"] is None else record["cagr"], percent),
        _write(record["sharpe"], number),
        _write(record["max_drawdown"], percent),
        cvar,
        _excess(record),
        _write(record["cost"], lambda value: percent(value, 2)),
    )


def _excess(record: dict[str, Any]) -> Text:
    """Growth in excess of the reference's at the same risk, and its interval."""
    found = record.get("same_risk")
    if not found or found["growth"] is None:
        return Text("ref." if "same_risk" in record and found is None else "–")
    low, high = found["interval"]
    text = Text(percent(found["growth"], sign=True))
    if low is not None and high is not None:
        text.append(f"\n{span(low, high, percent)}", style="dim")
    return text


def _headline(main: StrategyGroup) -> list[RenderableType]:
    """The comparison at the same risk, as a sentence."""
    sentence = describe_same_risk(main.median, main.title)
    return [Text(f"{sentence}."), Text("")] if sentence else []


def _against(main: StrategyGroup) -> list[RenderableType]:
    """How much faster than its rivals the main one grew."""
    lines = []
    for rival, figures in main.median["against"].items():
        if figures["growth"] is not None and figures["interval"] is not None:
            low, high = figures["interval"]
            interval = "" if low is None or high is None else f" {span(low, high, percent)}"
            lines.append(f"{rival} {percent(figures['growth'], sign=True)}{interval}")
    rate = "a year" if main.median["cagr"] is not None else "in all"
    return [Text(f"Growth of {main.title} {rate}, against " + "; ".join(lines), style="dim"), Text("")] if lines else []


def _latest(main: StrategyGroup) -> list[RenderableType]:
    today = main.median["next"]
    if today is None:  # returns of the user's own do not tell what is held
        return []
    heading = Text(f"Weights of {main.title} {describe_trade(today['as_of'], today.get('execution'))}", style="bold")
    return [heading, Text(format_weights(today["weights"]))]


def describe_trade(day: str, execution: str | None) -> str:
    """When weights were decided and are traded; without an execution they are from before there was a choice."""
    if execution == "next-close":
        return f"decided at the close of {day}, to be traded at the next close"
    return f"from the close of {day} on"


def format_weights(weights: dict[str, float]) -> str:
    """`AAPL 12.3 %  CASH 4.0 %`, the largest first."""
    visible = [(asset, weight) for asset, weight in weights.items() if weight >= 0.0005]
    ordered = sorted(visible, key=lambda item: -item[1])
    text = "  ".join(f"{asset} {percent(weight)}" for asset, weight in ordered[:MAX_WEIGHTS])
    return text + (f"  and {len(ordered) - MAX_WEIGHTS} more" if len(ordered) > MAX_WEIGHTS else "")


def _write(value: float | None, written: Format) -> str:
    return "–" if value is None else written(value)
