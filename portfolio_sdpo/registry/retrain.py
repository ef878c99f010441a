"""Retraining on new prices: a challenger, its evaluation on days that it had not seen, and a promotion or none.

1. Only one retrain runs at a time (`retrain_lock`). A retrain that was killed is recorded as failed.
2. The snapshot is updated if requested. If the same was done before for the same prices and champion, its result is
   returned, and nothing happens.
3. The challenger continues from the champion if settings, seed, cash and assets are the same: it trains on as in a
   backtest, with `further` updates before every decision that is due since the champion's close, and before the one at
   the last close. The record that it is evaluated by stands for exactly that, and it suffices: from one night to the
   next, one day in some hundreds of those that scenarios are drawn from is new. Otherwise it starts from scratch: it is
   trained up to the first held-out close, and then walk-forward to the last.
4. Both are evaluated by what their lineages decided on the held-out days (`lineage`, `holdout`).
5. The challenger is registered with its figures, and if it is fit, promoted, in one transaction that compares the
   champion. This is the last step, so that a retrain that ends before it leaves the champion as it was.

Continuing stays as cheap after many nights as after the first: the learning rate has fallen and η has grown as far as
they do, the trace is that of its own updates, and the record goes back no further than the held-out days.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from portfolio_sdpo import __version__
from portfolio_sdpo.errors import PortfolioSdpoError, RegistryError, SettingsError
from portfolio_sdpo.portfolio.last_prices import find_suspicion
from portfolio_sdpo.portfolio.market import load_latest
from portfolio_sdpo.portfolio.resume import discard_run
from portfolio_sdpo.portfolio.shared_policy_agent import build_agent
from portfolio_sdpo.registry.challenger import Challenge, Progress, flatten
from portfolio_sdpo.registry.models import Model
from portfolio_sdpo.registry.records import utc_now
from portfolio_sdpo.registry.registry import Registry
from portfolio_sdpo.registry.retrain_lock import hold_retrain_lock
from portfolio_sdpo.registry.runs import Run
from portfolio_sdpo.registry.training_plan import (
    CurrentChampion,
    RetrainSettings,
    TrainingPlan,
    explain_nothing_new,
    load_champion,
    plan_training,
)
from portfolio_sdpo.rl.checkpoint import fingerprint

__all__ = ["RetrainResult", "RetrainSettings", "retrain"]

Outcome = Literal["promoted", "kept"]


@dataclass(frozen=True)
class RetrainResult:
    """The result of a retrain."""

    outcome: Outcome
    reason: str
    model_id: str | None
    """The challenger; None if there was nothing to train on."""
    champion_id: str | None
    """The champion after the retrain."""
    run_id: str
    new: bool = True
    """False if an earlier run, which is named, did the same."""


def retrain(settings: RetrainSettings, *, registry: Registry, progress: Progress | None = None) -> RetrainResult:
    """Train a challenger on the newest prices and promote it if it is fit; a failure is recorded and raised.

    Raises a `RetrainBusyError` at once if another retrain of this registry is running.
    """
    with hold_retrain_lock(registry.database):
        for run in registry.runs(kind="retrain", status="running"):
            _settle(registry, run, "Its process ended before the retrain did.")
        return _Retrain(settings, registry, progress or (lambda share, what: None)).execute()


class _Retrain:
    """One retrain."""

    def __init__(self, settings: RetrainSettings, registry: Registry, report: Progress) -> None:
        self.settings = settings
        self.registry = registry
        self.report = report
        self.run: Run | None = None
        self.notes: tuple[str, ...] = ()
        self.challenge: Challenge | None = None

    def execute(self) -> RetrainResult:
        try:
            return self._execute()
        except BaseException as error:
            # What cannot be recorded now, the next retrain records.
            with suppress(RegistryError):
                _settle(self.registry, self.run or self._start({}, None), _describe_failure(error))
            raise

    def _execute(self) -> RetrainResult:
        champion = load_champion(self.registry)
        withdrawn = self.registry.last_promotion() if champion.id is None else None
        if withdrawn is not None:
            self.run = self._start({}, None)
            reason = (
                f"Kept: the champion {withdrawn.model_id} was withdrawn by {withdrawn.by} "
                f"({withdrawn.reason.rstrip('.')}): promote a model by hand, or roll the withdrawal back."
            )
            return self._end("kept", reason, None, champion)
        plan = plan_training(self.settings, champion, self.registry)
        if self.settings.update:
            self._update(plan.snapshot)
        market, data = load_latest(plan.snapshot, plan.cash)
        suspicion = find_suspicion(market, utc_now().date())
        if suspicion is not None:
            self.run = self._start({"champion": champion.id}, data["sha256"], plan)
            reason = f"Kept: nothing is trained on suspicious prices. {suspicion.sentence}"
            return self._end("kept", reason, None, champion)
        work = self._fingerprint_work(plan, data)
        earlier = self._find_earlier(work, data, champion)
        if earlier is not None:
            return earlier
        self.run = self._start({"work": work, "champion": champion.id}, data["sha256"], plan)
        nothing = explain_nothing_new(plan, market, champion)
        if nothing is not None:
            return self._end("kept", nothing, None, champion)
        model = self._find_evaluated(work, data, champion)
        if model is None:
            self.challenge = Challenge(self.settings, self.registry, plan, market, data, self.report)
            model = self.challenge.register(champion, work, self.notes)
        metrics = model.metrics or {}
        if not metrics["promote"]:
            return self._end("kept", metrics["reason"], model, champion)
        self.report(1.0, "promoting the challenger")
        by = _name_run(self.run)
        self.registry.promote(model.id, metrics["reason"], by=by, expected_champion=champion.id)
        return self._end("promoted", metrics["reason"], model, champion)

    def _update(self, snapshot: str | None) -> None:
        from portfolio_sdpo.prices.update import update_snapshot

        if snapshot is None:
            raise SettingsError("update: the bundled sample never changes; name a snapshot, or omit the update.")
        self.report(0.0, f"updating {snapshot}")
        self.notes = update_snapshot(snapshot).sentences

    def _fingerprint_work(self, plan: TrainingPlan, data: Mapping[str, Any]) -> str:
        """Identifies what is to be done, independent of the champion."""
        inputs = [self.settings.holdout, self.settings.confidence]
        trained = [*build_agent(plan.settings, plan.seed).identity, plan.label, plan.cash]
        return fingerprint([__version__, *map(str, [*inputs, *trained, data["sha256"], data.get("cash_sha256")])])

    def _find_earlier(self, work: str, data: Mapping[str, Any], champion: CurrentChampion) -> RetrainResult | None:
        """The result of the same work before, if the champion is still the one of then, or the one that it made."""
        for run in self.registry.runs(kind="retrain", status="done", data_hash=data["sha256"]):
            if run.settings.get("work") != work:
                continue
            made = run.outcome == "promoted" and run.model_id == champion.id
            if made and champion.agent is None:  # promoted then, and damaged since
                continue
            if not made and run.settings.get("champion") != champion.id:
                continue
            reason = f"Nothing new: {run.reason}"
            if run.outcome == "promoted" and not made:
                reason = f"Nothing new: {run.model_id} was promoted for these prices and rolled back since."
            outcome: Outcome = "promoted" if made else "kept"
            return RetrainResult(outcome, reason, run.model_id, champion.id, run.id, new=False)
        return None

    def _start(self, key: Mapping[str, Any], data_hash: str | None, plan: TrainingPlan | None = None) -> Run:
        asked = self.settings.model_dump(mode="json")
        seed = self.settings.seed if plan is None else plan.seed
        name = (self.settings.snapshot if plan is None else plan.snapshot) or "sample"
        return self.registry.start_run(
            "retrain", name, settings={**key, "asked": asked}, data_hash=data_hash, seed=seed
        )

    def _end(self, outcome: Outcome, reason: str, model: Model | None, champion: CurrentChampion) -> RetrainResult:
        assert self.run is not None
        model_id = None if model is None else model.id
        self.registry.end_run(self.run.id, outcome=outcome, reason=reason, model_id=model_id)
        for run_id in self.challenge.run_ids if self.challenge is not None else ():
            discard_run(run_id)
        return RetrainResult(outcome, reason, model_id, model_id if outcome == "promoted" else champion.id, self.run.id)

    def _find_evaluated(self, work: str, data: Mapping[str, Any], champion: CurrentChampion) -> Model | None:
        """A challenger whose retrain was killed before its promotion."""
        for model in self.registry.models(data_hash=data["sha256"]):
            metrics = model.metrics or {}
            if (metrics.get("work"), metrics.get("against")) == (work, champion.id) and model.id != champion.id:
                with suppress(RegistryError):  # if it was damaged since then, it is trained again
                    self.registry.load_agent(model.id)
                    return model
        return None


def _settle(registry: Registry, run: Run, reason: str) -> None:
    """Record the end of a retrain that was cut short: failed, unless it had promoted its challenger."""
    entry = next((each for each in registry.promotions() if each.by == _name_run(run)), None)
    if entry is None:
        registry.end_run(run.id, "failed", reason=reason)
    else:
        registry.end_run(run.id, outcome="promoted", reason=entry.reason, model_id=entry.model_id)


def _name_run(run: Run) -> str:
    return f"retrain {run.id}"


def _describe_failure(error: BaseException) -> str:
    """Why a run failed, as a sentence."""
    if isinstance(error, PortfolioSdpoError):
        return str(error).replace("\0", "")
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "The retrain was interrupted."
    return f"{type(error).__name__}: {flatten(error)}".replace("\0", "")
