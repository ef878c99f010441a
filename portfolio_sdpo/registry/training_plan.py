"""Settings of a retrain, the training plan that follows from them, and whether it continues from the champion."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from portfolio_sdpo.errors import RegistryError, RegistryUnavailableError, SettingsError
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Cash, Market
from portfolio_sdpo.portfolio.presets import plan as plan_preset
from portfolio_sdpo.portfolio.shared_policy import SharedPolicySettings
from portfolio_sdpo.registry.models import Model
from portfolio_sdpo.registry.registry import Registry
from portfolio_sdpo.settings import Settings


class RetrainSettings(Settings):
    """Everything that a retrain depends on besides the package, the prices and the champion."""

    snapshot: str | None = None
    """Name of the snapshot; None: the champion's, or the bundled sample if there is no champion."""
    update: bool = False
    """Whether to fetch new prices from the snapshot's source first."""
    preset: str | None = None
    """None: the champion's settings, with the `limits` of the config. It is `default` if there is no champion, or if
    anything else of the config, `algo` or `fee_bps` are given; the champion's `limits` stay even then."""
    algo: str | None = None
    """The agent of the preset; None: sdpo."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Fields of `AgentSettings` that override those of the preset."""
    fee_bps: float | None = Field(default=None, ge=0, lt=10_000)
    cash: float | str | None = None
    """zero, tbill or a yearly rate; None: the champion's together with its settings, else the preset's."""
    seed: int | None = Field(default=None, ge=0)
    """None: the champion's together with its settings, else 0."""
    holdout: int = Field(default=126, ge=2)
    """Held-out sessions at the end of the prices, on which challenger and champion are evaluated."""
    confidence: float = Field(default=0.95, gt=0, lt=1)
    """Confidence level of the interval of the difference in growth."""


@dataclass(frozen=True)
class TrainingPlan:
    """What a model and its descendants are trained with."""

    settings: AgentSettings
    seed: int
    label: str
    cash: Cash
    snapshot: str | None

    def explain_difference(self, model: Model) -> str | None:
        """Why a model was trained with another plan; None if it was trained with this one."""
        if AgentSettings.from_record(model.settings) != self.settings or model.config["label"] != self.label:
            return "its settings differ from the champion's"
        if model.config["seed"] != self.seed:
            return "its seed differs from the champion's"
        if model.config["cash"] != self.cash:
            return "its cash rate differs from the champion's"
        learner = self.settings.learner
        if isinstance(learner, SharedPolicySettings):
            known = model.config["today"].get("evidence", {}).get("policy_sha256")
            if learner.load_policy().sha256 != known:
                return "its policy differs from the champion's"
        return None


@dataclass(frozen=True)
class CurrentChampion:
    """The champion, as far as it can be loaded."""

    id: str | None
    model: Model | None
    """None if there is no champion, or its record is damaged."""
    agent: Agent | None
    problem: str | None
    """Why the agent cannot be loaded."""


def load_champion(registry: Registry) -> CurrentChampion:
    """The champion, as far as it can be loaded."""
    entry = registry.champion()
    if entry is None:
        return CurrentChampion(None, None, None, None)
    model = None
    try:
        model = registry.model(entry.model_id)
        return CurrentChampion(entry.model_id, model, registry.load_agent(entry.model_id), None)
    except RegistryUnavailableError:
        raise
    except RegistryError as error:
        return CurrentChampion(entry.model_id, model, None, str(error).partition(":")[0])


def plan_training(settings: RetrainSettings, champion: CurrentChampion, registry: Registry) -> TrainingPlan:
    """The settings, completed from the champion and the preset."""
    pattern = champion.model or _find_last_sound_champion(registry)
    snapshot = settings.snapshot
    if snapshot is None and pattern is not None:
        snapshot = pattern.config["data"]["snapshot"]
    changed = settings.preset or settings.algo or settings.config.keys() - {"limits"} or settings.fee_bps is not None
    if changed or pattern is None:
        algo = settings.algo or "sdpo"
        if algo == "none":
            raise SettingsError("algo: nothing can be trained without an agent; name one.")
        preset = settings.preset or "default"
        config = settings.config
        if settings.preset is None and pattern is not None:
            # Caps are the champion's own, whatever else is changed, and end with a preset that is asked for.
            caps = _find_limits(pattern) | _read_caps(config)
            config = {**config, "limits": caps} if caps else config
        planned = plan_preset(preset, [algo], config=config, fee_bps=settings.fee_bps, cash=settings.cash)
        return TrainingPlan(planned.agents[algo], settings.seed or 0, algo, planned.cash, snapshot)
    config = pattern.config
    cash = config["cash"] if settings.cash is None else plan_preset("default", ["none"], cash=settings.cash).cash
    seed = config["seed"] if settings.seed is None else settings.seed
    try:
        agent_settings = AgentSettings.from_record(pattern.settings)
    except SettingsError:
        raise SettingsError(
            f"preset: the settings of {pattern.id} were written by another version of portfolio_sdpo; name a preset."
        ) from None
    if caps := _read_caps(settings.config):
        # Caps alone are no reason to leave the champion's other settings.
        limits = Limits.model_validate({**agent_settings.limits.model_dump(), **caps})
        agent_settings = agent_settings.model_copy(update={"limits": limits})
    return TrainingPlan(agent_settings, seed, config["label"], cash, snapshot)


def _read_caps(config: Mapping[str, Any]) -> dict[str, Any]:
    """The table `limits` of a configuration, checked."""
    caps = config.get("limits", {})
    if not isinstance(caps, Mapping):
        raise SettingsError(f"limits: must be a table such as [limits] with max_weight = 0.4 (got {caps!r}).")
    try:
        Limits.model_validate(caps)
    except SettingsError as error:
        raise SettingsError(re.sub(r"^Limits[.:] *", "limits: ", str(error))) from None
    return dict(caps)


def _find_limits(model: Model) -> dict[str, Any]:
    """The champion's caps, as far as its settings can be read."""
    try:
        limits = AgentSettings.from_record(model.settings).limits
        return limits.model_dump(exclude_defaults=True)
    except SettingsError:
        return {}


def explain_nothing_new(plan: TrainingPlan, market: Market, champion: CurrentChampion) -> str | None:
    """Why there is nothing to train on; None if there is."""
    if champion.model is None or champion.agent is None:
        return None
    last, known = market.dates[-1], np.datetime64(champion.model.as_of, "D")
    if last < known:
        return f"Nothing new: the prices end on {last}, and the champion {champion.id} was trained up to {known}."
    if last == known and explain_fresh_start(plan, market, champion) is None:
        return f"Nothing new: the champion {champion.id} was trained up to {known}, the last close."
    return None


def explain_fresh_start(plan: TrainingPlan, market: Market, champion: CurrentChampion) -> str | None:
    """Why the challenger starts from scratch; None if it can continue from the champion."""
    if champion.id is None:
        return "there is no champion yet"
    if champion.model is None or champion.agent is None:
        return f"the champion cannot be loaded ({champion.problem})"
    if champion.model.assets != market.assets:
        return "its assets differ from the champion's"
    return plan.explain_difference(champion.model)


def _find_last_sound_champion(registry: Registry) -> Model | None:
    """The last champion whose record is intact: a damaged record must not change what is trained."""
    for entry in registry.promotions():
        with suppress(RegistryError):
            return registry.model(entry.model_id)
    return None
