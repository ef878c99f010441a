"""Retraining on new prices: a challenger, a judgement on days that it had not seen, a promotion or none.

1. One at a time (`lock`). Whatever was killed before is noted as such.
2. The snapshot is updated if asked for. If the same was done before for the same prices and champion, that is the
   answer, and nothing happens.
3. The challenger starts from the champion if the champion has the same settings, seed, cash and assets: it trains on
   as in a backtest, `further` updates before every decision that is due since the champion's close, and before the one
   at the last close. That is what the record that it is judged by stands for, and enough: from one night to the next
   one day in some hundreds of what scenarios are drawn from is another. Otherwise it starts from scratch, up to the
   first held-out close, and is walked from there to the last.
4. Both are judged by what their lines decided on the held-out days (`lineage`, `judge`).
5. The challenger is registered with its figures, and if it is fit promoted, in one transaction that compares the
   champion: the last step, so that whatever dies before leaves the champion as it was.

A warm start stays as cheap after many nights as it was after the first: the learning rate has fallen and η has grown as
far as they do, the trace is that of its own updates, and the record goes back no further than the held-out days.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from portfolio_sdpo import __version__
from portfolio_sdpo.backtest.simulate import Track
from portfolio_sdpo.errors import (
    DivergenceError,
    HistoryError,
    PortfolioSdpoError,
    RegistryError,
    RegistryUnavailableError,
    SettingsError,
)
from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.portfolio.market import Market, load_latest
from portfolio_sdpo.portfolio.resume import ResumableAgent, discard_run, make_run_id
from portfolio_sdpo.portfolio.store import describe, to_parts
from portfolio_sdpo.registry.judge import Verdict, judge
from portfolio_sdpo.registry.lineage import Lineage, Record, walk
from portfolio_sdpo.registry.lock import only_one
from portfolio_sdpo.registry.models import Model
from portfolio_sdpo.registry.recipe import Champion, Recipe, RetrainSettings, nothing_new, other_line, resolve, standing
from portfolio_sdpo.registry.registry import Registry
from portfolio_sdpo.registry.runs import Run
from portfolio_sdpo.rl.checkpoint import fingerprint

__all__ = ["RetrainSettings", "Retrained", "retrain"]

Progress = Callable[[float, str], None]
"""Called with the share that is done, from 0 to 1, and what is being done."""
Outcome = Literal["promoted", "kept"]


@dataclass(frozen=True)
class Retrained:
    """What came of a retrain."""

    outcome: Outcome
    reason: str
    model_id: str | None
    """The challenger; None if there was nothing to train on."""
    champion_id: str | None
    """Who is champion now."""
    run_id: str
    new: bool = True
    """False if all was done before, by the run that is named."""


def retrain(settings: RetrainSettings, *, registry: Registry, progress: Progress | None = None) -> Retrained:
    """Train a challenger on the newest prices and promote it if it is fit; a failure is noted and raised.

    Raises a `RetrainBusyError` at once if another retrain of this registry is running.
    """
    with only_one(registry.database):
        for run in registry.runs(kind="retrain", status="running"):
            _settle(registry, run, "Its process ended before it did.")
        return _Retrain(settings, registry, progress or (lambda share, what: None)).go()


class _Retrain:
    """One retrain."""

    def __init__(self, settings: RetrainSettings, registry: Registry, tell: Progress) -> None:
        self.settings = settings
        self.registry = registry
        self.tell = tell
        self.run: Run | None = None
        self.notes: tuple[str, ...] = ()
        self.walks: list[str] = []
        """Runs of the stand-ins, saved until the end."""

    def go(self) -> Retrained:
        try:
            return self._go()
        except BaseException as error:
            # What cannot be written down now, the next retrain does.
            with suppress(RegistryError):
                _settle(self.registry, self.run or self._start({}, None), _sentence(error))
            raise

    def _go(self) -> Retrained:
        champion = standing(self.registry)
        recipe = resolve(self.settings, champion, self.registry)
        if self.settings.update:
            self._update(recipe.snapshot)
        market, data = load_latest(recipe.snapshot, recipe.cash)
        work = self._work(recipe, data)
        earlier = self._earlier(work, data, champion)
        if earlier is not None:
            return earlier
        self.run = self._start({"work": work, "champion": champion.id}, data["sha256"], recipe)
        nothing = nothing_new(recipe, market, champion)
        if nothing is not None:
            return self._end("kept", nothing, None, champion)
        model = self._judged_before(work, data, champion)
        if model is None:
            model = self._challenge(recipe, market, data, champion, work)
        metrics = model.metrics or {}
        if not metrics["promote"]:
            return self._end("kept", metrics["reason"], model, champion)
        self.tell(1.0, "promoting")
        by = _by(self.run)
        self.registry.promote(model.id, metrics["reason"], by=by, expected_champion=champion.id)
        return self._end("promoted", metrics["reason"], model, champion)

    def _update(self, snapshot: str | None) -> None:
        from portfolio_sdpo.prices.update import update_snapshot

        if snapshot is None:
            raise SettingsError("update: the bundled sample never changes; name a snapshot, or leave the update out.")
        self.tell(0.0, f"updating {snapshot}")
        self.notes = update_snapshot(snapshot).sentences

    def _work(self, recipe: Recipe, data: Mapping[str, Any]) -> str:
        """What is to be done, whoever is champion."""
        asked = [self.settings.holdout, self.settings.confidence]
        made = [recipe.settings.model_dump_json(), recipe.seed, recipe.label, recipe.cash]
        return fingerprint([__version__, *map(str, [*asked, *made, data["sha256"], data.get("cash_sha256")])])

    def _earlier(self, work: str, data: Mapping[str, Any], champion: Champion) -> Retrained | None:
        """What came of the same before, if the champion is still the one it was done for, or the one it made."""
        for run in self.registry.runs(kind="retrain", status="done", data_hash=data["sha256"]):
            if run.settings.get("work") != work:
                continue
            made = run.outcome == "promoted" and run.model_id == champion.id
            if made and champion.agent is None:  # it was, and is damaged since
                continue
            if not made and run.settings.get("champion") != champion.id:
                continue
            reason = f"Nothing new: {run.reason}"
            if run.outcome == "promoted" and not made:
                reason = f"Nothing new: {run.model_id} was promoted for these prices and taken back since."
            outcome: Outcome = "promoted" if made else "kept"
            return Retrained(outcome, reason, run.model_id, champion.id, run.id, new=False)
        return None

    def _start(self, key: Mapping[str, Any], data_hash: str | None, recipe: Recipe | None = None) -> Run:
        asked = self.settings.model_dump(mode="json")
        seed = self.settings.seed if recipe is None else recipe.seed
        name = (self.settings.snapshot if recipe is None else recipe.snapshot) or "sample"
        return self.registry.start_run(
            "retrain", name, settings={**key, "asked": asked}, data_hash=data_hash, seed=seed
        )

    def _end(self, outcome: Outcome, reason: str, model: Model | None, champion: Champion) -> Retrained:
        assert self.run is not None
        model_id = None if model is None else model.id
        self.registry.end_run(self.run.id, outcome=outcome, reason=reason, model_id=model_id)
        for run in self.walks:
            discard_run(run)
        return Retrained(outcome, reason, model_id, model_id if outcome == "promoted" else champion.id, self.run.id)

    def _judged_before(self, work: str, data: Mapping[str, Any], champion: Champion) -> Model | None:
        """A challenger whose retrain was killed when only the promotion was left."""
        for model in self.registry.models(data_hash=data["sha256"]):
            metrics = model.metrics or {}
            if (metrics.get("work"), metrics.get("against")) == (work, champion.id) and model.id != champion.id:
                with suppress(RegistryError):  # damaged since then, it is trained again
                    self.registry.load_agent(model.id)
                    return model
        return None

    def _challenge(self, recipe: Recipe, market: Market, data: dict[str, Any], champion: Champion, work: str) -> Model:
        """Train, judge and register a challenger."""
        days = self._days(recipe, market)
        other = other_line(recipe, market, champion)
        limit, fee = recipe.settings.limit, recipe.settings.fee
        warm = champion.model if other is None else None
        share = 0.9 if warm is not None or champion.agent is None else 0.5
        lineage = None
        if warm is not None:
            assert champion.agent is not None
            try:
                lineage = self._line(recipe, champion.agent, warm, market, data, days, (0.0, share))
                track, looks = self._walked(lineage, market, limit, days, fee)
            except DivergenceError as error:
                other, warm, lineage = f"going on from the champion diverged ({_plain(error)})", None, None
                champion = standing(self.registry)  # what diverged is not the champion any more
                share = 0.5
        if lineage is None:
            lineage = self._line(recipe, None, None, market, data, days, (0.0, share))
            track, looks = self._walked(lineage, market, limit, days, fee)
        agent = lineage.agent
        if agent.as_of != market.dates[-1]:
            raise HistoryError(
                f"there is no stock to train on at the last close, {market.dates[-1]} ({agent.waiting}): "
                "update the prices or import others."
            )
        rival: Track | None = None
        why_not: str | None = None
        if warm is None:
            rival, why_not = self._rival(champion, market, data, days, fee, (share, 0.95))
        self.tell(0.95, "judging")
        verdict = judge(track, looks, limit, rival, self.settings.confidence)
        reason = _reason(verdict, lineage, warm, other, champion, why_not)
        metrics = {
            "promote": verdict.promote,
            "reason": reason,
            "against": champion.id,
            "started_from": "scratch" if warm is None else warm.id,
            "updates": lineage.updates,
            **verdict.figures,
            "notes": [*self.notes, *track.notes],
            "work": work,
        }
        config = describe(agent, market, recipe.cash, data)
        config["record"] = lineage.record(market.assets)
        if warm is not None:
            config["updates"] = int(warm.config["updates"]) + lineage.updates
            # The parent has its own; without an update, the last row still tells what is promised.
            agent.trace = agent.trace[-max(lineage.updates, 1) :]
        model = self.registry.add_parts(
            to_parts(agent, config), parent=None if warm is None else warm.id, metrics=metrics
        )
        # The same agent may have been trained before; then it keeps what it was judged by, and this judgement is new.
        return model if model.metrics == metrics else self.registry.set_metrics(model.id, metrics)

    def _days(self, recipe: Recipe, market: Market) -> tuple[np.datetime64, np.datetime64]:
        limit, holdout = recipe.settings.limit, self.settings.holdout
        if holdout < limit.horizon:
            raise SettingsError(
                f"holdout: must be at least the {limit.horizon} sessions that the limit is about (got {holdout})."
            )
        first = len(market) - 1 - holdout
        least = limit.horizon + limit.least_scenarios
        if first < least:
            raise HistoryError(
                f"The prices have {len(market)} sessions: {holdout} held-out ones and {least} to train on before them "
                "are too many; import more prices or hold out fewer."
            )
        return market.dates[first], market.dates[-1]

    def _line(
        self,
        recipe: Recipe,
        member: Agent | None,
        model: Model | None,
        market: Market,
        data: Mapping[str, Any],
        days: tuple[np.datetime64, np.datetime64],
        part: tuple[float, float],
    ) -> Lineage:
        """The line of the member, or one that begins; its progress goes from the first to the second share."""
        settings = recipe.settings
        surroundings = {
            "retrain": [str(days[0]), list(market.assets)],
            "prices": data["sha256"],
            "cash": data.get("cash_sha256", recipe.cash),
        }

        def fresh() -> ResumableAgent:
            agent = Agent(settings, recipe.seed, recipe.label)
            run = make_run_id(agent, surroundings)
            self.walks.append(run)
            return ResumableAgent(agent, run)

        start, end = (int(np.searchsorted(market.dates, day)) for day in days)
        count = settings.first + settings.further * ((end - start) // settings.every + 1)
        if member is not None and member.as_of is not None and member.as_of <= days[0]:
            count -= settings.first
        low, high = part
        name = "the challenger" if part[0] == 0.0 else "the champion"

        def watch(number: int) -> None:
            self.tell(low + (high - low) * min(number / max(count, 1), 1.0), f"walking {name}: update {number}")

        record: Record = {} if model is None else model.config.get("record", {})
        return Lineage(fresh, member, record, days, watch)

    def _walked(
        self, lineage: Lineage, market: Market, limit: Any, days: tuple[np.datetime64, np.datetime64], fee: float
    ) -> tuple[Track, list[dict[str, Any]]]:
        done = False
        try:
            walked = walk(lineage, market, limit, days, fee)
            done = True
            return walked
        finally:
            lineage.close(done=done)

    def _rival(
        self,
        champion: Champion,
        market: Market,
        data: Mapping[str, Any],
        days: tuple[np.datetime64, np.datetime64],
        fee: float,
        part: tuple[float, float],
    ) -> tuple[Track | None, str | None]:
        """The champion's track on the same days and with the same fee, or why there is none.

        A champion that cannot decide on these prices is none to be compared with; it must not stand in the way.
        """
        if champion.id is None or champion.model is None or champion.agent is None:
            return None, champion.trouble
        gone = [asset for asset in champion.model.assets if asset not in market.assets]
        if gone:
            return None, f"the prices hold no {', '.join(gone[:3])}{', …' * (len(gone) > 3)}, which it needs"
        config = champion.model.config
        recipe = Recipe(
            champion.agent.settings, config["seed"], config["label"], config["cash"], config["data"]["snapshot"]
        )
        own = _columns(market, champion.model.assets)
        try:
            lineage = self._line(recipe, champion.agent, champion.model, own, data, days, part)
            track, _ = self._walked(lineage, own, recipe.settings.limit, days, fee)
        except RegistryUnavailableError:
            raise
        except PortfolioSdpoError as error:
            return None, f"it could not be walked through these days ({_plain(error)})"
        return track, None


def _settle(registry: Registry, run: Run, reason: str) -> None:
    """Note how a retrain ended that did not come to its end: failed, unless it had promoted already."""
    entry = next((each for each in registry.promotions() if each.by == _by(run)), None)
    if entry is None:
        registry.end_run(run.id, "failed", reason=reason)
    else:
        registry.end_run(run.id, outcome="promoted", reason=entry.reason, model_id=entry.model_id)


def _by(run: Run) -> str:
    return f"retrain {run.id}"


def _columns(market: Market, assets: tuple[str, ...]) -> Market:
    """The market of some of its assets, in that order."""
    chosen = [market.assets.index(asset) for asset in assets]
    return Market(market.dates, tuple(assets[1:]), market.gross_returns[:, chosen], market.listed[:, chosen])


def _reason(
    verdict: Verdict,
    lineage: Lineage,
    warm: Model | None,
    other: str | None,
    champion: Champion,
    why_not: str | None,
) -> str:
    """One sentence with the figures."""
    said = f"{'Promoted' if verdict.promote else 'Kept'}: {verdict.reason}"
    if warm is not None:
        return (
            f"{said}; it went on from the champion {warm.id} with {lineage.updates} updates, so that on these days "
            "both decide alike."
        )
    if champion.id is not None and why_not is not None:
        said += f"; it was not compared with the champion {champion.id}, since {why_not}"
    return f"{said}; it started from scratch, since {other}."


def _plain(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _sentence(error: BaseException) -> str:
    """Why a run failed."""
    if isinstance(error, PortfolioSdpoError):
        return str(error).replace("\0", "")
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "It was interrupted."
    return f"{type(error).__name__}: {_plain(error)}".replace("\0", "")
