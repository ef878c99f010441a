"""The learning strategy: before a decision it trains on scenarios of what is known by then, then decides.

New scenarios are drawn for every update from trailing history up to the decision day, the policy is the one of the
decision before, trained on. It promises the CVaR limit on its own scenarios; `shield` checks that promise separately.
The limit is on simple returns; training bounds the CVaR of log growth by ln(1 + bound), which is on the safe side: the
mean of a tail's growth is at least the exponential of its mean log growth.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from portfolio_sdpo.errors import DivergenceError, HistoryError, SettingsError
from portfolio_sdpo.portfolio.accounting import Execution
from portfolio_sdpo.portfolio.acting_learner import ActingLearner
from portfolio_sdpo.portfolio.analytic import AnalyticLearner, AnalyticSettings
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Array, Market, Mask, all_cash
from portfolio_sdpo.portfolio.path_learner import PathLearner
from portfolio_sdpo.portfolio.path_policy import Deployment
from portfolio_sdpo.portfolio.path_shield import PathShield
from portfolio_sdpo.portfolio.return_measures import Volatility, conditional_value_at_risk
from portfolio_sdpo.portfolio.scenarios import Replay, Resample, ScenarioKind, Scenarios, window_paths
from portfolio_sdpo.portfolio.shared_policy import SharedPolicySettings
from portfolio_sdpo.portfolio.shield import CvarLimit, ShieldForm
from portfolio_sdpo.risk import Constraint, CVaR
from portfolio_sdpo.risk.constraint import EtaSchedule
from portfolio_sdpo.rl.algorithms import AlgorithmSettings, resolve_settings, settings_types
from portfolio_sdpo.rl.algorithms.base import Problem
from portfolio_sdpo.rl.checkpoint import load_checkpoint, single_thread
from portfolio_sdpo.rl.rollout import torch_generator
from portfolio_sdpo.settings import Choices, Settings


def name_kind(learner: Mapping[str, Any]) -> dict[str, Any]:
    """A learner's settings with the kind that they are stored by: SDPO with the estimator `analytic` has its own.

    >>> name_kind({"kind": "sdpo", "estimator": "analytic", "anneal": 9})
    {'kind': 'analytic', 'anneal': 9}
    """
    fields = dict(learner)
    if fields.get("kind") == "sdpo" and fields.get("estimator") == "analytic":
        del fields["estimator"]
        fields["kind"] = "analytic"
    return fields


def _resolve_learner(data: Any) -> Any:
    """The settings that a table stands for."""
    if isinstance(data, AnalyticSettings | SharedPolicySettings):
        return data
    if isinstance(data, Mapping):
        fields = name_kind(data)
        if fields.get("kind") == "shared":
            return SharedPolicySettings.__pydantic_validator__.validate_python(fields)
        if fields.get("kind") == "analytic":
            return AnalyticSettings.__pydantic_validator__.validate_python(fields)
    return resolve_settings(data)


AnyLearner = Annotated[
    SerializeAsAny[Settings],
    BeforeValidator(_resolve_learner),
    Choices(lambda: [AnalyticSettings, SharedPolicySettings, *settings_types()]),
]
"""SDPO with the analytic estimator, any of the algorithms acting on price paths, or a policy trained already."""


PROMISE = 2**31
"""In place of the number of an update, where paths are drawn to measure the policy."""
TrainingKind = Literal["as-deployed", "through-shield", "from-cash"]


class AgentSettings(Settings):
    """What the agent may risk, what it trains on, and for how long."""

    limit: CvarLimit = CvarLimit()
    """Its horizon is also the length of the scenarios."""
    scenarios: ScenarioKind = "bootstrap"
    """`bootstrap` resamples trailing history, `window` replays the last sessions as they were (the paper's)."""
    history: int | None = Field(default=504, ge=2)
    """Sessions that bootstrapped scenarios are drawn from; None: all that there are."""
    block: float | None = Field(default=1.0, ge=1)
    """Mean length of a block of the bootstrap; None: chosen from the data. With blocks a recurrent policy learns the
    days by heart: it recognises one and knows what came after it, in the scenarios and nowhere else."""
    filtered: Volatility | None = None
    """How past days are brought to today's volatility before they are drawn from; None: they stay as they were."""
    shrink: float = Field(default=0.0, ge=0, le=1)
    """Share by which every stock's mean growth is pulled towards the average stock's: past winners were lucky, too."""
    paths: int = Field(default=512, ge=2, le=1_000_000)
    """Bootstrapped scenarios per update."""
    episodes: int = Field(default=85, ge=2, le=1_000_000)
    """Episodes per update of a learner that acts, spread evenly over the scenarios, at least one on each."""
    first: int = Field(default=800, ge=1)
    """Updates before the first decision."""
    further: int = Field(default=20, ge=0)
    """Updates before every further decision."""
    every: int = Field(default=5, ge=1)
    """Sessions from one decision to the next."""
    discount: float = Field(default=1.0, gt=0, le=1)
    """Of later sessions' growth, as it is maximised and as it is limited: only 1 limits what is earned in the end."""
    eta: tuple[float, float] = (500.0, 100_000.0)
    """η at the first update and from the first decision on: 1/η is in units of log growth over the horizon."""
    learner: AnyLearner = AnalyticSettings(learning_rate=3e-3, anneal=800)
    fee: float = Field(default=0.0, ge=0, lt=1)
    """Share of what is traded that training reckons with."""
    shield_form: ShieldForm = "calibrated"
    """The form of the shield that its weights pass when they are served."""
    execution: Execution = "next-close"
    """When a decision made at a close is traded: at the next close, or at the same, as the paper assumes."""
    limits: Limits = Limits()
    """Caps on stocks and groups and a limit on turnover, which all that it decides is kept within; they are part of the
    agent wherever it trades, but training does not know them."""
    training: TrainingKind = "as-deployed"
    """`as-deployed` trains what trades: from random starting weights, at the rhythm `every`, each decision on the
    sessions seen last. `through-shield` does the same behind the shield, which then alone sizes what the agent chooses.
    `from-cash` is the paper's: an episode starts all in cash and decides every session."""

    added_later = frozenset({"limits"})

    @field_validator("eta")
    @classmethod
    def _grows(cls, eta: tuple[float, float]) -> tuple[float, float]:
        if not 0.0 < eta[0] <= eta[1]:
            raise ValueError("must be positive and must not fall")
        return eta

    @model_validator(mode="after")
    def _can_pass_the_shield(self) -> Self:
        if self.training != "through-shield":
            return self
        for field, is_so, needed in (
            ("learner", isinstance(self.learner, AnalyticSettings), "the estimator analytic"),
            ("scenarios", self.scenarios == "bootstrap", "bootstrap"),
            ("shield_form", self.shield_form == "calibrated", "calibrated"),
        ):
            if not is_so:
                raise SettingsError(f"{field}: training through-shield needs {needed}; choose it, or as-deployed.")
        return self

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> Self:
        """Settings as they were stored with a model.

        Before there was a choice, agents were trained from cash, traded at the same close, and passed the filtered form
        of the shield.
        """
        old = {"execution": "same-close", "training": "from-cash", "shield_form": "filtered"}
        return cls.model_validate({**old, **fields})

    @property
    def deployment(self) -> Deployment | None:
        """How the policy is deployed, where it is trained so."""
        if self.training == "from-cash":
            return None
        return Deployment(self.limit.horizon, self.limit.horizon, self.every, self.execution)

    @property
    def rows(self) -> int:
        """Sessions of a training path."""
        return self.limit.horizon + 1 if self.deployment is None else self.deployment.rows

    def problem(self) -> Problem:
        """Growth under the limit."""
        constraint = Constraint(
            signal="reward",
            measure=CVaR(alpha=self.limit.alpha),
            sense=">=",
            bound=math.log1p(self.limit.bound),
            eta=EtaSchedule(start=self.eta[0], end=self.eta[1], iterations=self.first),
        )
        return Problem(discount=self.discount, constraints=(constraint,))


def build_learner(settings: AgentSettings, assets: int) -> PathLearner:
    """What the agent trains, for cash and stocks `assets` in number, with freshly initialised networks."""
    problem, learner = settings.problem(), settings.learner
    if isinstance(learner, AnalyticSettings):
        return AnalyticLearner(learner, problem, assets, settings.fee, settings.execution, settings.deployment)
    assert isinstance(learner, AlgorithmSettings)
    return ActingLearner(
        learner, problem, assets, settings.fee, settings.episodes, settings.execution, settings.deployment
    )


class Agent:
    """A `Strategy` that learns; starts all in cash."""

    def __init__(self, settings: AgentSettings | None = None, seed: int = 0, name: str = "sdpo") -> None:
        self.settings = settings or AgentSettings()
        self.seed = seed
        self.name = name
        self.every = self.settings.every
        self.trace: list[dict[str, Any]] = []
        """A row for every update: date, iteration, objective, risk, bound, slack, regime."""
        self.watch: Callable[[int], None] | None = None
        """Called after every update with their number so far."""
        self.learner: PathLearner | None = None
        """None before the first decision."""
        self.partial_learner: PathLearner | None = None
        """The learner during the updates before the first decision, each of which has a row in the trace."""
        self.assets: tuple[str, ...] = ()
        """Columns of the market that it was trained on."""
        self.as_of: np.datetime64 | None = None
        """The close that it was trained up to."""
        self.waiting: str | None = None
        """Why the last decision was to wait in cash; None if it was not."""

    @property
    def identity(self) -> list[str]:
        """What its decisions depend on besides the package version and the prices."""
        return [self.settings.model_dump_json(exclude=self.settings.find_unused_additions()), str(self.seed)]

    def decide(self, history: Market, held: Array) -> Array:
        """Train on what is known, then the weights [A] for what comes; asked again at the same close, only the weights.

        Where there is nothing to train on any more (every stock is gone, or has insufficient price history) it waits in
        cash and warns: hours of a backtest are not lost to a day without stocks. Before the first decision that is an
        error.
        One torch thread: the result must not depend on how many processes share the machine.
        The caps hold; the limit on turnover comes last, behind the shield (`shield_within`, `simulate`).
        """
        limits = self.settings.limits
        limits.check(history.assets)
        return limits.cap(self._decide(history, held), history.listed[-1], history.assets)

    def _decide(self, history: Market, held: Array) -> Array:
        """The weights before the caps."""
        self._check(history)
        try:
            scenarios = self.find_scenarios(history)
        except HistoryError as error:
            if self.learner is None:
                raise
            self.waiting = str(error).partition(":")[0]
            warnings.warn(f"waits in cash ({self.waiting}).", stacklevel=2)
            return all_cash(len(held))
        self.waiting = None
        with single_thread():
            self._train(history, scenarios)
            return self.decide_as_trained(history, held, scenarios.listed[-1])

    def estimate_promise(self, history: Market, paths: int = 4096) -> float | None:
        """CVaR over the limit's horizon that the trained agent promises on its own scenarios; None without any.

        Of the policy that decides, on so many new paths; where that is not known, and for agents trained from cash, it
        is the running estimate of the training.
        """
        assert self.learner is not None
        try:
            scenarios = self.find_scenarios(history)
        except HistoryError:
            scenarios = None
        if scenarios is not None:
            draws = np.random.SeedSequence([self.seed, len(history) - 1, PROMISE])
            rng = np.random.default_rng(draws)
            rows = scenarios.draw(rng, scenarios.choose(rng, scenarios.paths or paths))
            batch = _tensors(scenarios.gross_returns[rows], scenarios.listed[rows])
            self._face_shield(self.learner, history, scenarios)
            with single_thread():
                growth = self.learner.earn_as_deployed(*batch, torch_generator(draws))
            if growth is not None and growth.isfinite().all():
                return float(conditional_value_at_risk(growth.double().expm1().numpy(), self.settings.limit.alpha))
        # The mean of a tail's growth is at least the exponential of its mean log growth.
        return _to_return(float(self.trace[-1]["risk"]))

    def updates_for(self, decisions: int) -> int:
        """Updates that so many decisions take from the start."""
        return self.settings.first + self.settings.further * (decisions - 1)

    def restore(
        self,
        checkpoint: Path | bytes,
        run: str,
        assets: Sequence[str],
        as_of: np.datetime64,
        trace: Sequence[dict[str, Any]],
    ) -> None:
        """Become the agent whose learner is in the checkpoint, a file or its content, trained up to that close."""
        learner = self._build(len(assets))
        load_checkpoint(checkpoint, learner, run)
        self.learner, self.assets, self.as_of, self.trace = learner, tuple(assets), as_of, list(trace)

    def restore_training(self, checkpoint: Path, run: str, assets: int, trace: Sequence[dict[str, Any]]) -> None:
        """Become the agent that was interrupted during the updates before its first decision."""
        learner = self._build(assets)
        load_checkpoint(checkpoint, learner, run)
        learner.resume(len(trace))
        self.partial_learner, self.trace = learner, list(trace)

    def _check(self, history: Market) -> None:
        if self.learner is None:
            return
        if history.assets != self.assets:
            raise SettingsError(
                f"{self.name} was trained on {', '.join(self.assets)}, which is not what it is asked about: "
                "give it prices of these, or train another."
            )
        if history.dates[-1] < self.as_of:
            raise HistoryError(
                f"{self.name} knows prices up to {self.as_of} and cannot decide on {history.dates[-1]} as if it did "
                "not: train another."
            )

    def _build(self, assets: int) -> PathLearner:
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return build_learner(self.settings, assets)

    def _train(self, history: Market, scenarios: Scenarios) -> None:
        day = history.dates[-1]
        made = 0
        if self.learner is None:
            if self.partial_learner is None:
                self.partial_learner, self.trace = self._build(len(history.assets)), []
            learner, updates, made = self.partial_learner, self.settings.first, len(self.trace)
        else:
            learner, updates = self.learner, 0 if day == self.as_of else self.settings.further
        if updates and not made:
            learner.restart_estimates()
        self._face_shield(learner, history, scenarios)
        bound = math.log1p(self.settings.limit.bound)
        for number in range(made, updates):
            draws = np.random.SeedSequence([self.seed, len(history) - 1, number])
            rng = np.random.default_rng(draws)
            rows = scenarios.draw(rng, scenarios.choose(rng, scenarios.paths or self.settings.paths))
            row = learner.update(
                *_tensors(scenarios.gross_returns[rows], scenarios.listed[rows]), torch_generator(draws)
            )
            self.trace.append(
                {
                    "date": str(day),
                    "iteration": len(self.trace) + 1,
                    "objective": row["objective"],
                    "risk": row["risk_0"],
                    "bound": bound,
                    "slack": row["slack_0"],
                    "regime": row["regime_0"],
                }
            )
            if self.watch is not None:
                self.watch(len(self.trace))
        self.learner, self.partial_learner, self.assets, self.as_of = learner, None, history.assets, day

    def _face_shield(self, learner: PathLearner, history: Market, scenarios: Scenarios) -> None:
        """Let what the learner decides on its paths pass the shield as it is at the last close, if it trains so."""
        if self.settings.training == "through-shield":
            assert isinstance(learner, AnalyticLearner)
            learner.shield = PathShield.of(history, scenarios.listed[-1], self.settings.limit)

    def find_scenarios(self, history: Market) -> Scenarios:
        """What the updates before a decision draw from."""
        t, window = len(history) - 1, self.settings.limit.horizon
        if self.settings.scenarios == "window":
            return Replay.of_paths(window_paths(history, t, self.settings.rows - 1))
        settings = self.settings
        days = Resample.of(
            history,
            t,
            window,
            settings.block,
            settings.history,
            filtered=settings.filtered,
            shrink=settings.shrink,
        )
        return replace(days, length=settings.rows - 1)

    def decide_as_trained(self, history: Market, held: Array, known: Mask) -> Array:
        """What the policy holds after the last sessions; stocks that scenarios do not know [A] stay out."""
        assert self.learner is not None
        window = self.settings.limit.horizon
        listed = history.listed[-window:] & known
        gross_returns = np.where(listed, history.gross_returns[-window:], 1.0)
        now = torch.as_tensor(held, dtype=torch.float32)
        weights = self.learner.weights(*_tensors(gross_returns, listed), now).double().numpy()
        return np.asarray(weights / weights.sum())


def _tensors(gross_returns: Array, listed: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.as_tensor(gross_returns, dtype=torch.float32), torch.as_tensor(np.array(listed))


def _to_return(log_growth: float) -> float:
    try:
        return math.expm1(log_growth)
    except OverflowError:
        raise DivergenceError(
            f"The log growth on the agent's scenarios is {log_growth:,.0f}, beyond any account: check the prices."
        ) from None
