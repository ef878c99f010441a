"""One backtest: every strategy through the same simulation, its figures, and the record of it all.

`simulate_strategies` works on any `Market` and writes nothing. `Backtest` is the same for a snapshot's prices, with
agents whose work is saved as it goes (see `portfolio.resume`), so that a backtest that was killed continues where it
was. `report.result.run_backtest` also writes the folder with the report.

    market = Market.from_prices(prices)
    record = simulate_strategies(market, [Entry(make_strategy("equal-weight"))], BacktestSettings(fee_bps=5))

Learning agents are made elsewhere: anything that is a `Strategy`. What is looked at besides is optional: `seed` (an
int), and after the simulation `trace`, rows about the training (see `record.TRACE_COLUMNS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field, field_validator, model_validator

from portfolio_sdpo import __version__
from portfolio_sdpo.backtest.entries import (
    STRONGEST,
    Entry,
    Progress,
    shield_strongest,
    simulate_entries,
    simulate_entry,
)
from portfolio_sdpo.backtest.intervals import Bootstrap
from portfolio_sdpo.backtest.simulate import Strategy, Track
from portfolio_sdpo.backtest.strategies import BENCHMARKS, check_name, make_benchmark
from portfolio_sdpo.common.files import make_id
from portfolio_sdpo.common.plugins import require_extra
from portfolio_sdpo.common.progress import Tell
from portfolio_sdpo.errors import Interruption, SettingsError
from portfolio_sdpo.portfolio.accounting import Execution
from portfolio_sdpo.portfolio.calibrated_shield import WINDOW
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Cash, Market, load_market, parse_cash, select_days
from portfolio_sdpo.portfolio.shield import CvarLimit, ShieldForm
from portfolio_sdpo.settings import Settings, check_seeds

if TYPE_CHECKING:
    from portfolio_sdpo.backtest.record import Record
    from portfolio_sdpo.portfolio.agent import Agent

SHIELDED_BENCHMARKS = (
    "equal-weight",
    "inverse-volatility",
    "risk-parity",
    "minimum-variance",
    "mean-variance",
    "maximum-return",
    STRONGEST,
)
"""Where the shield is on, these pass it too, so that agents are compared with what keeps the limit in the same way."""


class DeclaredAgent(Settings):
    """What is written down about an agent, which is made elsewhere."""

    label: str = Field(min_length=1)
    """Its `name`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """All that it was made with."""


class BacktestSettings(Settings):
    """All that a backtest depends on besides the package and the prices."""

    snapshot: str | None = None
    """NAME or NAME@HASH of a snapshot; None = the bundled sample."""
    strategies: tuple[str, ...] = BENCHMARKS
    """Benchmarks by name, this package's own or another's (`strategies.STRATEGIES`)."""
    agents: tuple[DeclaredAgent, ...] = ()
    start: date | None = None
    """Day of the first decision; None = as soon as a year of prices lies before it."""
    end: date | None = None
    """Last day of the track; None = the last session."""
    fee_bps: float = Field(default=0.0, ge=0, lt=10_000)
    """Fee on what is traded, in hundredths of a percent."""
    cash: Cash = "zero"
    """What cash earns: nothing, the bundled 13-week Treasury bill, or a yearly rate (0.02 = 2 %)."""
    execution: Execution = "next-close"
    """When a decision made at a close is traded: at the next close, or at the same, as the paper assumes."""
    limits: Limits = Limits()
    limit: CvarLimit = CvarLimit()
    """The promise that every track is compared with; the shield and `maximum-return` keep to it."""
    shield: bool = False
    """Show every agent, and the benchmarks `shielded`, a second time with their decisions shielded."""
    shielded: tuple[str, ...] = SHIELDED_BENCHMARKS
    """Names of benchmarks that are shown behind the shield too, where it is on and as far as they take part;
    `strongest` is the one of highest final wealth, and `all` are all."""
    shield_form: ShieldForm = "calibrated"
    """The form of the shield; `filtered` is the one of reproductions and older runs."""
    shield_lookback: int = Field(default=504, ge=1)
    """Sessions of history that the filtered shield looks at as they were."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of the agents, each of which is there once per seed."""
    bootstrap: Bootstrap | None = Bootstrap()
    """How intervals are drawn; None = no intervals."""

    _check_seeds = field_validator("seeds")(check_seeds)

    @field_validator("cash", mode="before")
    @classmethod
    def _a_rate(cls, value: Any) -> Any:
        return parse_cash(value)

    @model_validator(mode="after")
    def _consistent(self) -> BacktestSettings:
        for name in self.strategies:
            check_name(name)
        labels = [agent.label for agent in self.agents]
        passing = [*labels, *filter(self.passes_shield, self.strategies)] if self.shield else []
        names = [*self.strategies, *labels, *(f"{name} + shield" for name in passing)]
        if not names:
            raise SettingsError("strategies: name at least one strategy or agent.")
        if len(set(names)) < len(names):
            raise SettingsError(f"strategies: every strategy and agent needs its own name (got {', '.join(names)}).")
        for name in set(self.shielded) - {STRONGEST, "all"}:
            check_name(name)
        if self.start and self.end and self.start >= self.end:
            raise SettingsError(f"start: must be before end (got {self.start} and {self.end}).")
        least = self.limit.horizon + self.limit.least_scenarios - 1
        if self.shield and self.shield_form == "filtered" and self.shield_lookback < least:
            raise SettingsError(
                f"shield_lookback: {self.limit.horizon}-session windows and a tail of {self.limit.alpha:g} need at "
                f"least {least} sessions (got {self.shield_lookback}): lengthen it, choose a larger alpha or leave "
                "the shield out."
            )
        if self.shield and self.shield_form == "calibrated" and self.limit.horizon >= WINDOW:
            raise SettingsError(
                f"horizon: the shield looks at the last {WINDOW} sessions, so it could only hold cash for a limit over "
                f"{self.limit.horizon}: shorten the horizon or leave the shield out."
            )
        return self

    def passes_shield(self, benchmark: str) -> bool:
        """Whether a benchmark of this name is shown behind the shield, whatever comes of it."""
        return self.shield and (benchmark in self.shielded or "all" in self.shielded)

    @property
    def fee(self) -> float:
        """The fee as a share of what is traded."""
        return self.fee_bps / 10_000


def simulate_strategies(
    market: Market,
    entries: Sequence[Entry],
    settings: BacktestSettings,
    *,
    days: tuple[date, date] | None = None,
    data: dict[str, Any] | None = None,
    progress: Progress | None = None,
    jobs: int = 1,
) -> Record:
    """Simulate every entry and measure it; nothing is written.

    market: all prices, those before the start included. days: the first and the last day; None takes those of the
    settings, and without a start the first session after a year of prices. data: what the record says about the prices;
    None takes it from the market. With `jobs` > 1 that many processes share the entries, which have to be picklable,
    and `progress` is called from another thread. Of the settings, strategies and agents are only written down.
    """
    from portfolio_sdpo.backtest.metrics import compare_all, make_metrics
    from portfolio_sdpo.backtest.record import make_record

    days = days or select_days(market, settings.start, settings.end)
    simulated = list(simulate_entries(market, entries, settings, days, progress, jobs))
    if settings.shield and STRONGEST in settings.shielded:
        shield_strongest(market, entries, simulated, settings, days)
    runs = [run for runs in simulated for run in runs]
    metrics = make_metrics(runs, settings.limit, settings.bootstrap)
    strategies = [entry.strategy for entry in entries if entry.kind == "benchmark"]
    config = {
        "package_version": __version__,
        "settings": settings.model_dump(mode="json"),
        "strategies": {
            each.name: inner.model_dump(mode="json")
            for each in strategies
            if isinstance(inner := getattr(each, "inner", each), Settings)
        },
        "data": data or describe_market(market),
    }
    created = datetime.now(UTC).replace(microsecond=0)
    name = make_id(created, [config, metrics])
    superiority = compare_all(runs, settings.limit, settings.bootstrap)
    config = {"id": name, "created_at": created.isoformat(), **config}
    return make_record(config, metrics, runs, settings.fee, superiority)


def describe_market(market: Market) -> dict[str, Any]:
    """What a record says about prices that come from no snapshot."""
    return {
        "snapshot": None,
        "source": "given",
        "notes": [],
        "tickers": list(market.tickers),
        "first": str(market.dates[0]),
        "last": str(market.dates[-1]),
        "sessions": len(market),
        "sessions_per_year": market.sessions_per_year,
    }


class Backtest:
    """The backtest that settings describe, on a snapshot's prices or the bundled sample, ready to run.

    `agents` are those that the settings declare, one object per label and seed. What was saved of the same agents'
    work is continued, unless `restart` deletes it first.
    """

    def __init__(self, settings: BacktestSettings, agents: Sequence[Strategy] = (), *, restart: bool = False) -> None:
        # What can be known to be wrong is said before the work, which may take hours.
        _check_extras(settings)
        benchmarks = [make_benchmark(name, settings.limit) for name in settings.strategies]
        declared = _match_agents(settings, agents)
        self.settings = settings
        self.market, self.days, self.data = load_market(settings.snapshot, settings.cash, settings.start, settings.end)
        self.entries = [
            *(replace(entry, run=_run_id(entry.strategy, settings, self.days, self.data)) for entry in declared),
            *(Entry(each, shield=settings.passes_shield(each.name), title=each.name) for each in benchmarks),
        ]
        if restart:
            self.discard()

    def run(self, progress: Progress | None = None, jobs: int = 1) -> Record:
        """Simulate and measure every strategy; an interrupt says what is saved."""
        if jobs < 1:
            raise SettingsError(f"jobs: must be at least 1 (got {jobs}).")
        try:
            return simulate_strategies(
                self.market, self.entries, self.settings, days=self.days, data=self.data, progress=progress, jobs=jobs
            )
        except KeyboardInterrupt:
            raise Interruption(_describe_saved(self.entries)) from None

    def discard(self) -> None:
        """Delete what is saved of the agents' work."""
        for entry in self.entries:
            if entry.run is not None:
                from portfolio_sdpo.portfolio.resume import discard_run

                discard_run(entry.run)


def simulate_agent(settings: BacktestSettings, agent: Agent, tell: Tell | None = None) -> Track:
    """Simulate one of the settings' agents and save its decisions, so that its `Backtest` finds them made.

    So the agents of one backtest can be simulated anywhere, in processes that may die, and the record of them all is
    made at the end. `tell` is called with the updates made and their number in all.
    """
    market, days, data = load_market(settings.snapshot, settings.cash, settings.start, settings.end)
    entry = Entry(agent, "agent", agent.seed, title=agent.name, run=_run_id(agent, settings, days, data))
    (run, *_) = simulate_entry(market, entry, settings, days, tell)
    return run.track


def _match_agents(settings: BacktestSettings, agents: Sequence[Strategy]) -> list[Entry]:
    """The agents, exactly one per declared label and seed, in that order."""
    found = {(agent.name, int(getattr(agent, "seed", settings.seeds[0]))): agent for agent in agents}
    wanted = [(agent.label, seed) for agent in settings.agents for seed in settings.seeds]
    if len(found) < len(agents) or set(found) != set(wanted):
        spelled = ", ".join(f"{label} with seed {seed}" for label, seed in wanted) or "none"
        raise SettingsError(
            f"agents: the settings declare {spelled}; give exactly these, each once (got {len(agents)} of them)."
        )
    several = len(settings.seeds) > 1
    return [
        Entry(
            found[label, seed],
            "agent",
            seed,
            shield=settings.shield,
            title=f"{label}, seed {seed}" if several else label,
        )
        for label, seed in wanted
    ]


def _run_id(
    strategy: Strategy, settings: BacktestSettings, days: tuple[date, date], data: dict[str, Any]
) -> str | None:
    """What an agent's work is saved under: all that its decisions depend on. None for what cannot be resumed."""
    if not hasattr(strategy, "restore"):
        return None
    from portfolio_sdpo.portfolio.resume import make_run_id

    surroundings = {
        "days": days,
        "prices": data["sha256"],
        "cash": data.get("cash_sha256", settings.cash),
        "fee_bps": settings.fee_bps,
        "execution": settings.execution,
        "limits": settings.limits.model_dump(mode="json", exclude=settings.limits.find_unused_additions()),
    }
    return make_run_id(cast("Agent", strategy), surroundings)


def _describe_saved(entries: Sequence[Entry]) -> str:
    """The sentence after an interrupt: what is there to continue with."""
    from portfolio_sdpo.portfolio.resume import count_saved_decisions

    found = [number for entry in entries if entry.run is not None if (number := count_saved_decisions(entry.run))]
    if not found:
        return "no decision of an agent was made yet, so nothing is saved"
    made = f"{sum(found)} decision{'s' * (sum(found) != 1)}"
    return f"{made} of {len(found)} agent{'s' * (len(found) != 1)} {'is' if sum(found) == 1 else 'are'} saved"


def _check_extras(settings: BacktestSettings) -> None:
    for package in ("plotly", *(["arch"] if settings.bootstrap else [])):
        require_extra("A backtest", package, "backtest")
