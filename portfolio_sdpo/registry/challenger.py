"""Training and evaluating a challenger: its decisions on the held-out days, the champion's, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from portfolio_sdpo.backtest.simulate import Track
from portfolio_sdpo.errors import (
    DivergenceError,
    HistoryError,
    PortfolioSdpoError,
    RegistryUnavailableError,
    SettingsError,
)
from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.resume import ResumableAgent, make_run_id
from portfolio_sdpo.portfolio.shared_policy_agent import build_agent
from portfolio_sdpo.portfolio.shield import CvarLimit
from portfolio_sdpo.portfolio.store import describe, to_parts
from portfolio_sdpo.registry.holdout import Verdict, evaluate_challenger
from portfolio_sdpo.registry.lineage import Lineage, Record, simulate_lineage
from portfolio_sdpo.registry.models import Model
from portfolio_sdpo.registry.registry import Registry
from portfolio_sdpo.registry.training_plan import (
    CurrentChampion,
    RetrainSettings,
    TrainingPlan,
    explain_fresh_start,
    load_champion,
)

Progress = Callable[[float, str], None]
"""Called with the share that is done, from 0 to 1, and what is being done."""
Days = tuple[np.datetime64, np.datetime64]
"""The first and the last held-out session."""


@dataclass
class Challenge:
    """One challenger on one set of prices."""

    settings: RetrainSettings
    registry: Registry
    plan: TrainingPlan
    market: Market
    data: Mapping[str, Any]
    """Hash and origin of the prices."""
    report: Progress
    run_ids: list[str] = field(default_factory=list)
    """Saved runs of the stand-ins, from which an interrupted retrain resumes."""

    def register(self, champion: CurrentChampion, work: str, notes: Sequence[str]) -> Model:
        """Train, evaluate and register a challenger; `work` and `notes` are stored with its figures."""
        plan, market = self.plan, self.market
        days = self._choose_days()
        fresh_start = explain_fresh_start(plan, market, champion)
        limit = plan.settings.limit
        parent = champion.model if fresh_start is None else None
        share = 0.9 if parent is not None or champion.agent is None else 0.5
        lineage = None
        if parent is not None:
            assert champion.agent is not None
            try:
                lineage = self._make_lineage(plan, champion.agent, parent, market, days, (0.0, share))
                track, shield_days = self._simulate(lineage, market, limit, days, plan.settings.limits)
            except DivergenceError as error:
                fresh_start = f"continuing from the champion diverged ({flatten(error)})"
                parent, lineage = None, None
                champion = load_champion(self.registry)  # the agent that diverged is not the champion any more
                share = 0.5
        if lineage is None:
            lineage = self._make_lineage(plan, None, None, market, days, (0.0, share))
            track, shield_days = self._simulate(lineage, market, limit, days, plan.settings.limits)
        agent = lineage.agent
        if agent.as_of != market.dates[-1]:
            raise HistoryError(
                f"There is no stock to train on at the last close, {market.dates[-1]} ({agent.waiting}): "
                "update the prices or import others."
            )
        rival: Track | None = None
        not_compared: str | None = None
        if parent is None:
            rival, not_compared = self._simulate_champion(champion, days, (share, 0.95))
        self.report(0.95, "evaluating the challenger")
        verdict = evaluate_challenger(track, shield_days, limit, rival, self.settings.confidence)
        metrics = {
            "promote": verdict.promote,
            "reason": _explain(verdict, lineage, parent, fresh_start, champion, not_compared),
            "against": champion.id,
            "started_from": "scratch" if parent is None else parent.id,
            "updates": lineage.updates,
            **verdict.figures,
            "notes": [*notes, *track.notes],
            "work": work,
        }
        config = describe(agent, market, plan.cash, dict(self.data))
        config["record"] = lineage.record(market.assets)
        if parent is not None:
            config["updates"] = int(parent.config["updates"]) + lineage.updates
            # The parent has its own rows; without an update, the last row still holds the promised risk.
            agent.trace = agent.trace[-max(lineage.updates, 1) :]
        model = self.registry.add_parts(
            to_parts(agent, config), parent=None if parent is None else parent.id, metrics=metrics
        )
        # The same agent may have been registered before with other figures; this evaluation replaces them.
        return model if model.metrics == metrics else self.registry.set_metrics(model.id, metrics)

    def _choose_days(self) -> Days:
        limit, holdout, market = self.plan.settings.limit, self.settings.holdout, self.market
        if holdout < limit.horizon:
            raise SettingsError(
                f"holdout: must be at least the limit's horizon of {limit.horizon} sessions (got {holdout})."
            )
        first = len(market) - 1 - holdout
        least = limit.horizon + limit.least_scenarios
        if first < least:
            raise HistoryError(
                f"The prices have {len(market)} sessions, too few for {holdout} held-out sessions and {least} to train "
                "on before them; import more prices or hold out fewer."
            )
        return market.dates[first], market.dates[-1]

    def _make_lineage(
        self,
        plan: TrainingPlan,
        member: Agent | None,
        model: Model | None,
        market: Market,
        days: Days,
        shares: tuple[float, float],
    ) -> Lineage:
        """The lineage of the member, or a new one; its progress goes from the first share to the second."""
        settings = plan.settings
        surroundings = {
            "retrain": [str(days[0]), list(market.assets)],
            "prices": self.data["sha256"],
            "cash": self.data.get("cash_sha256", plan.cash),
            "execution": self.plan.settings.execution,
        }

        def make_stand_in() -> ResumableAgent:
            agent = build_agent(settings, plan.seed, plan.label)
            run_id = make_run_id(agent, surroundings)
            self.run_ids.append(run_id)
            return ResumableAgent(agent, run_id)

        start, end = (int(np.searchsorted(market.dates, day)) for day in days)
        count = settings.first + settings.further * ((end - start) // settings.every + 1)
        if member is not None and member.as_of is not None and member.as_of <= days[0]:
            count -= settings.first
        low, high = shares
        name = "the challenger" if low == 0.0 else "the champion"

        def watch(number: int) -> None:
            self.report(low + (high - low) * min(number / max(count, 1), 1.0), f"training {name}: update {number}")

        record: Record = {} if model is None else model.config.get("record", {})
        return Lineage(make_stand_in, member, record, days, watch)

    def _simulate(
        self, lineage: Lineage, market: Market, limit: CvarLimit, days: Days, limits: Limits
    ) -> tuple[Track, list[dict[str, Any]]]:
        """The shielded track of a lineage with the fee and the execution of the challenger."""
        settings, done = self.plan.settings, False
        try:
            simulated = simulate_lineage(lineage, market, limit, days, settings.fee, settings.execution, limits)
            done = True
            return simulated
        finally:
            lineage.close(done=done)

    def _simulate_champion(
        self, champion: CurrentChampion, days: Days, shares: tuple[float, float]
    ) -> tuple[Track | None, str | None]:
        """The champion's track on the same days with the same fee and execution, or why there is none.

        A champion that cannot decide on these prices is not compared, and must not prevent a promotion.
        """
        if champion.id is None or champion.model is None or champion.agent is None:
            return None, champion.problem
        missing = [asset for asset in champion.model.assets if asset not in self.market.assets]
        if missing:
            names = ", ".join(missing[:3]) + ", …" * (len(missing) > 3)
            return None, f"there are no prices of {names}, which it needs"
        config = champion.model.config
        plan = TrainingPlan(
            champion.agent.settings, config["seed"], config["label"], config["cash"], config["data"]["snapshot"]
        )
        market = _select_assets(self.market, champion.model.assets)
        try:
            lineage = self._make_lineage(plan, champion.agent, champion.model, market, days, shares)
            track, _ = self._simulate(lineage, market, plan.settings.limit, days, plan.settings.limits)
        except RegistryUnavailableError:
            raise
        except PortfolioSdpoError as error:
            return None, f"it could not be simulated on these days ({flatten(error)})"
        return track, None


def _select_assets(market: Market, assets: tuple[str, ...]) -> Market:
    """The market of some of its assets, in the given order."""
    columns = [market.assets.index(asset) for asset in assets]
    return Market(market.dates, tuple(assets[1:]), market.gross_returns[:, columns], market.listed[:, columns])


def _explain(
    verdict: Verdict,
    lineage: Lineage,
    parent: Model | None,
    fresh_start: str | None,
    champion: CurrentChampion,
    not_compared: str | None,
) -> str:
    """The verdict as one sentence with its figures."""
    reason = f"{'Promoted' if verdict.promote else 'Kept'}: {verdict.reason}"
    if parent is not None:
        return (
            f"{reason}; it continued from the champion {parent.id} with {lineage.updates} updates, so on these days "
            "both decide alike."
        )
    if champion.id is not None and not_compared is not None:
        reason += f"; it was not compared with the champion {champion.id}, because {not_compared}"
    return f"{reason}; it started from scratch, because {fresh_start}."


def flatten(error: BaseException) -> str:
    """The message of an error on one line without a full stop, for a longer sentence."""
    return " ".join(str(error).split()).rstrip(".")
