"""Requests for a backtest or a retrain: checked like those of the command line, and turned into its arguments.

A setting that is None is left out of the command; the preset, the champion or the prices then determine it.
"""

from __future__ import annotations

import tomllib
from datetime import date
from typing import Any

from portfolio_sdpo.backtest.run import BacktestSettings, DeclaredAgent
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.agent_titles import make_agent_title
from portfolio_sdpo.portfolio.groups import parse_groups
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import load_latest, load_market
from portfolio_sdpo.portfolio.presets import NO_AGENT, Plan, plan
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.training_plan import RetrainSettings, load_champion, plan_training
from portfolio_sdpo.settings import Settings

from . import jobs
from .registry import open_registry

SAMPLE = "the bundled sample"
CHAMPION_PRICES = "the champion's prices"


class JobRequest(Settings):
    """What a backtest and a retrain have in common."""

    snapshot: str | None = None
    alpha: float | None = None
    bound: float | None = None
    horizon: int | None = None
    fee_bps: float | None = None
    cash: str | None = None
    max_weight: float | None = None
    max_turnover: float | None = None
    groups: str | None = None
    """CSV with the largest weights of groups of stocks (`groups.parse_groups`)."""
    config: str = ""
    """TOML with fields of `AgentSettings`."""

    def settings_table(self) -> dict[str, Any]:
        """The content of `config`."""
        try:
            return tomllib.loads(self.config)
        except ValueError as error:
            raise SettingsError(f"config: this is not valid TOML ({error}); correct it.") from None

    @property
    def config_text(self) -> str | None:
        """The TOML, if there is any."""
        return self.config if self.config.strip() else None

    def find_limits(self) -> dict[str, Any]:
        """The fields of `Limits` that were given; checked, so that an error is about them alone."""
        found: dict[str, Any] = {"max_weight": self.max_weight, "max_turnover": self.max_turnover}
        found = {name: value for name, value in found.items() if value is not None}
        if self.groups is not None:
            found["groups"] = parse_groups(self.groups)
        checked = Limits.model_validate(found).model_dump(mode="json")
        return {name: checked[name] for name in found}

    def list_common_options(self) -> dict[str, Any]:
        """Options that both commands have."""
        return {
            "snapshot": self.snapshot,
            "alpha": self.alpha,
            "bound": self.bound,
            "horizon": self.horizon,
            "fee-bps": self.fee_bps,
            "cash": self.cash,
            "max-weight": self.max_weight,
            "max-turnover": self.max_turnover,
        }


class BacktestRequest(JobRequest):
    """`portfolio-sdpo backtest`."""

    preset: str = "default"
    algos: tuple[str, ...] = ()
    """Empty: benchmarks only."""
    strategies: tuple[str, ...] = ()
    start: date | None = None
    end: date | None = None
    shield: bool | None = None
    seeds: str = "0"
    jobs: int = 1

    def check(self) -> BacktestSettings:
        """The settings that the command will run with; raises a `PortfolioSdpoError` for a wrong one."""
        seeds = _parse_seeds(self.seeds)
        if self.jobs < 1:
            raise SettingsError(f"jobs: must be at least 1 (got {self.jobs}).")
        if not self.strategies and not self.algos:
            raise SettingsError("strategies: choose at least one benchmark or agent.")
        if not self.strategies:
            raise SettingsError("strategies: choose at least one benchmark to compare the agents with.")
        planned = self._plan()
        settings = BacktestSettings(
            snapshot=self.snapshot,
            strategies=self.strategies,
            agents=tuple(
                DeclaredAgent(label=label, settings=learning.model_dump(mode="json"))
                for label, learning in planned.agents.items()
            ),
            start=self.start,
            end=self.end,
            fee_bps=planned.fee_bps,
            cash=planned.cash,
            execution=planned.execution,
            shield_form=planned.shield_form,
            limit=planned.limit,
            limits=planned.limits,
            shield=planned.shield,
            seeds=seeds,
            bootstrap={"seed": seeds[0]},
        )
        # Raises if there are no such days.
        market, _, _ = load_market(settings.snapshot, settings.cash, settings.start, settings.end)
        settings.limits.check(market.assets)
        return settings

    def _plan(self) -> Plan:
        if self.fee_bps is not None and not 0.0 <= self.fee_bps < 1e4:
            raise SettingsError(f"fee_bps: must be at least 0 and less than 10,000 (got {self.fee_bps:g}).")
        return plan(
            self.preset,
            list(self.algos) or [NO_AGENT],
            config=self.settings_table(),
            alpha=self.alpha,
            bound=self.bound,
            horizon=self.horizon,
            fee_bps=self.fee_bps,
            cash=self.cash,
            shield=self.shield,
            limits=self.find_limits(),
        )

    def arguments(self) -> list[str]:
        """The arguments of the command, without `--config`."""
        shield = [] if self.shield is None else ["--shield" if self.shield else "--no-shield"]
        options = self.list_common_options() | {
            "preset": self.preset,
            "algo": ",".join(self.algos) or NO_AGENT,
            "strategies": ",".join(self.strategies),
            "start": self.start,
            "end": self.end,
            "seeds": self.seeds.replace(" ", ""),
            "jobs": self.jobs,
        }
        return [*_format_options(options), *shield]

    @property
    def title(self) -> str:
        """The title of the job."""
        days = f", {self.start or 'first day'} to {self.end or 'last day'}" if self.start or self.end else ""
        agents = self._plan().agents.items()
        who = " and ".join(make_agent_title(label, agent.model_dump()) for label, agent in agents) or "benchmarks"
        return f"Backtest of {who} on {self.snapshot or SAMPLE}{days}"


class RetrainRequest(JobRequest):
    """`portfolio-sdpo retrain`."""

    preset: str | None = None
    algo: str | None = None
    update: bool = False
    seed: int | None = None
    holdout: int = 126

    def check(self, registry: Registry) -> RetrainSettings:
        """The settings that the command will run with; raises a `PortfolioSdpoError` for a wrong one."""
        config = self.settings_table()
        limit = {"alpha": self.alpha, "bound": self.bound, "horizon": self.horizon}
        given = {name: value for name, value in limit.items() if value is not None}
        if given:
            known = config.get("limit", {})
            if not isinstance(known, dict):
                raise SettingsError(f"config: limit must be a table with bound, alpha and horizon (got {known!r}).")
            config["limit"] = known | given
        if caps := self.find_limits():
            stated = config.get("limits", {})
            if not isinstance(stated, dict):
                raise SettingsError(f"config: limits must be a table such as [limits] (got {stated!r}).")
            config["limits"] = stated | caps
        settings = RetrainSettings(
            snapshot=self.snapshot,
            update=self.update,
            preset=self.preset,
            algo=self.algo,
            config=config,
            fee_bps=self.fee_bps,
            cash=self.cash,
            seed=self.seed,
            holdout=self.holdout,
        )
        plan = plan_training(settings, load_champion(registry), registry)
        if plan.snapshot is not None:
            Store().find(plan.snapshot)
        elif self.update:
            raise SettingsError("update: the bundled sample never changes; choose a snapshot, or leave the update off.")
        if self.groups is not None:
            plan.settings.limits.check(load_latest(plan.snapshot, plan.cash)[0].assets)
        return settings

    def arguments(self) -> list[str]:
        """The arguments of the command, without `--config`."""
        options = self.list_common_options() | {
            "preset": self.preset,
            "algo": self.algo,
            "seed": self.seed,
            "holdout": self.holdout,
        }
        return [*_format_options(options), *(["--update"] if self.update else [])]

    @property
    def title(self) -> str:
        """The title of the job."""
        return f"Retrain on {self.snapshot or CHAMPION_PRICES}{', updated' * self.update}"


def submit(request: BacktestRequest | RetrainRequest) -> jobs.DashboardJob:
    """Check everything, then start the job; an error leaves nothing started."""
    if isinstance(request, BacktestRequest):
        request.check()
        return jobs.start("backtest", request.arguments(), request.title, request.config_text, request.groups)
    registry = open_registry()
    request.check(registry)
    title = request.title
    if registry.champion() is None:
        title = title.replace(CHAMPION_PRICES, SAMPLE)
    return jobs.start("retrain", request.arguments(), title, request.config_text, request.groups)


def _format_options(given: dict[str, Any]) -> list[str]:
    """`--name=value` as one word, so that a value that begins with a minus sign is not taken for an option."""
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


def _parse_seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(f"seeds: must be whole numbers separated by commas (got {text!r}).") from None
