"""What a retrain is asked for, what line of models that is, and whether the champion is of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from portfolio_sdpo.errors import RegistryError, RegistryUnavailableError, SettingsError
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.market import Cash, Market
from portfolio_sdpo.portfolio.presets import plan
from portfolio_sdpo.registry.models import Model
from portfolio_sdpo.registry.registry import Registry
from portfolio_sdpo.settings import Settings


class RetrainSettings(Settings):
    """All that a retrain depends on besides the package, the prices and the champion."""

    snapshot: str | None = None
    """Name of the snapshot; None: the champion's, and where there is no champion the bundled sample."""
    update: bool = False
    """Whether the snapshot's source is asked for new prices first."""
    preset: str | None = None
    """None: the champion's settings, unless `algo`, `config` or `fee_bps` are given; then, and where there is no
    champion, `default`."""
    algo: str | None = None
    """Of the preset; None: sdpo."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Fields of `AgentSettings` that count before the preset's."""
    fee_bps: float | None = Field(default=None, ge=0, lt=10_000)
    cash: float | str | None = None
    """zero, tbill or a yearly rate; None: with the champion's settings the champion's, else the preset's."""
    seed: int | None = Field(default=None, ge=0)
    """None: with the champion's settings the champion's, else 0."""
    holdout: int = Field(default=126, ge=2)
    """Sessions at the end of the prices that challenger and champion are judged on."""
    confidence: float = Field(default=0.95, gt=0, lt=1)
    """Of the interval of the difference in growth."""


@dataclass(frozen=True)
class Recipe:
    """What a line of models is made with."""

    settings: AgentSettings
    seed: int
    label: str
    cash: Cash
    snapshot: str | None

    def fits(self, model: Model) -> str | None:
        """Why the model is of another line; None if it is of this."""
        if AgentSettings.model_validate(model.settings) != self.settings or model.config["label"] != self.label:
            return "it has other settings than the champion"
        if model.config["seed"] != self.seed:
            return "it has another seed than the champion"
        if model.config["cash"] != self.cash:
            return "its cash earns another rate than the champion's"
        return None


@dataclass(frozen=True)
class Champion:
    """Who stands, as far as it can be known."""

    id: str | None
    model: Model | None
    """None if there is none, or its record is damaged."""
    agent: Agent | None
    trouble: str | None
    """Why it cannot be loaded."""


def standing(registry: Registry) -> Champion:
    """The champion, as far as it can be loaded."""
    entry = registry.champion()
    if entry is None:
        return Champion(None, None, None, None)
    model = None
    try:
        model = registry.model(entry.model_id)
        return Champion(entry.model_id, model, registry.load_agent(entry.model_id), None)
    except RegistryUnavailableError:
        raise
    except RegistryError as error:
        return Champion(entry.model_id, model, None, str(error).partition(":")[0])


def resolve(asked: RetrainSettings, champion: Champion, registry: Registry) -> Recipe:
    """What is asked for, filled up from the champion and the preset."""
    pattern = champion.model or _former(registry)
    snapshot = asked.snapshot
    if snapshot is None and pattern is not None:
        snapshot = pattern.config["data"]["snapshot"]
    given = asked.preset or asked.algo or asked.config or asked.fee_bps is not None
    if given or pattern is None:
        algo = asked.algo or "sdpo"
        if algo == "none":
            raise SettingsError("algo: there is nothing to train without an agent; name one.")
        preset = asked.preset or "default"
        planned = plan(preset, [algo], config=asked.config, fee_bps=asked.fee_bps, cash=asked.cash)
        return Recipe(planned.agents[algo], asked.seed or 0, algo, planned.cash, snapshot)
    config = pattern.config
    cash = config["cash"] if asked.cash is None else plan("default", ["none"], cash=asked.cash).cash
    seed = config["seed"] if asked.seed is None else asked.seed
    try:
        settings = AgentSettings.model_validate(pattern.settings)
    except SettingsError:
        raise SettingsError(
            f"preset: the settings of {pattern.id} are of another version of portfolio_sdpo; name a preset."
        ) from None
    return Recipe(settings, seed, config["label"], cash, snapshot)


def nothing_new(recipe: Recipe, market: Market, champion: Champion) -> str | None:
    """Why there is nothing to train on, for a champion that can be loaded."""
    if champion.model is None or champion.agent is None:
        return None
    last, known = market.dates[-1], np.datetime64(champion.model.as_of, "D")
    if last < known:
        return f"Nothing new: the prices end on {last}, and the champion {champion.id} knows them up to {known}."
    if last == known and other_line(recipe, market, champion) is None:
        return f"Nothing new: the champion {champion.id} knows the prices up to {known}, their last close."
    return None


def other_line(recipe: Recipe, market: Market, champion: Champion) -> str | None:
    """Why the challenger cannot go on from the champion; None if it can."""
    if champion.id is None:
        return "there is no champion yet"
    if champion.model is None or champion.agent is None:
        return f"the champion cannot be loaded ({champion.trouble})"
    if champion.model.assets != market.assets:
        return "its assets are not the champion's"
    return recipe.fits(champion.model)


def _former(registry: Registry) -> Model | None:
    """The last champion whose record is sound: a damaged one must not turn the job into another."""
    for entry in registry.promotions():
        with suppress(RegistryError):
            return registry.model(entry.model_id)
    return None
