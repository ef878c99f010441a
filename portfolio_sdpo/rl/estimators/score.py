"""The `score` estimator: risks from the critics, and the advantage whose policy gradient is the gradient of the risk.

Let u be the influence function of ρ at the distribution of Y(s0), and c_t the discounted signal cumulated before t.
Seen from step t the value of u is U_t = E_τ[u(c_t + γ^t Ŷ_τ(s_t))], and its increments do two jobs:

- summed over an episode they correct the critic's plug-in value of ρ by what really happened (the one-step estimator
  of semiparametric statistics: ρ(Ŷ) + mean of the increments; an error of the critic enters only squared),
- summed ahead with decay λ they are the risk advantage.

For an expectation u(y) = y, the increments are γ^t times the TD errors, the estimate is the mean return and the
advantage is GAE: the policy-gradient theorem's case and the non-linear one are the same formula. PPO, IPO, CPO and PCPO
therefore use this estimator as well, with critics of the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.nn.quantiles import expect, find_tails
from portfolio_sdpo.risk import RiskMeasure
from portfolio_sdpo.risk.influence import Pooled
from portfolio_sdpo.rl.critics import CriticBank, CriticSettings, Features, Past, Valuation
from portfolio_sdpo.rl.estimators.base import (
    Assessment,
    Direction,
    RiskEstimate,
    ShadowPrices,
    SignalKey,
    Valuations,
)
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.past import BackwardCritics, batch_past, own_past
from portfolio_sdpo.rl.rollout import Rollout

if TYPE_CHECKING:
    from portfolio_sdpo.rl.algorithms.base import Problem

ATOMS = 32
"""Quantiles by which distributions are represented when advantages are computed from quantile critics."""
LEAST_WEIGHT = 1e-4
"""Increments of u are divided by γ^t, but by no less than this: later steps hardly move the return from s0, and in
single precision the quotient would be noise, or 0/0."""


class ScoreEstimator:
    """Critics for the reward and for every constraint's signal, and risk advantages from them.

    gae_lambda, risk_lambda: λ of the advantages of expectations and of other measures.
    atoms: quantiles by which distributions are represented. credit_discount: see `ActorCriticSettings`.
    partners: episodes over whose past a mean is taken. pooled: None moves their pasts to where a state has them, by
    backward critics; True takes them as they are, False takes each episode's own (see `rl.past`).
    """

    critics: CriticBank
    backward_critics: BackwardCritics | None = None

    def __init__(
        self,
        problem: Problem,
        codec: ObservationCodec,
        critic: CriticSettings,
        *,
        gae_lambda: float,
        risk_lambda: float | None = None,
        atoms: int | None = None,
        partners: int = 32,
        pooled: bool | None = None,
        credit_discount: float | None = None,
    ) -> None:
        self.problem = problem
        self.gae_lambda = gae_lambda
        self.risk_lambda = gae_lambda if risk_lambda is None else risk_lambda
        self.atoms = (1 if critic.kind == "mean" else ATOMS) if atoms is None else atoms
        self.partners = partners
        self.pooled = pooled
        self.objective_key = ("reward", problem.discount)
        self.budget_keys = problem.budget_keys()
        self.credit_keys = [
            (signal, min(credit_discount, discount))
            if credit_discount is not None and constraint.measure.linear
            else (signal, discount)
            for constraint, (signal, discount) in zip(problem.constraints, self.budget_keys, strict=True)
        ]
        measures = [problem.objective, *(constraint.measure for constraint in problem.constraints)]
        asked = list(zip([self.objective_key, *self.credit_keys], measures, strict=True))
        self.tails = {key: find_tails([measure for other, measure in asked if other == key]) for key, _ in asked}
        self.critics = CriticBank(codec, list(self.tails), critic, tails=self.tails)
        self.nonlinear_keys = list(dict.fromkeys(key for key, measure in asked if not measure.linear))
        """Signals of whose distribution more than the mean counts"""
        if pooled is None and self.atoms > 1 and self.nonlinear_keys:
            self.backward_critics = BackwardCritics(codec, self.nonlinear_keys, critic)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [bank.optimiser for bank in (self.critics, self.backward_critics) if bank is not None]

    def fit_critics(self, rollout: Rollout, generator: torch.Generator) -> tuple[Valuations, LogRow]:
        # Where critics judge a rollout before they learn from it, they are read first (`CriticSettings.fit_first`).
        log: LogRow
        if self.critics.settings.fit_first:
            log = dict(self.critics.fit(rollout, generator))
            valuations = self._read(rollout)
        else:
            features = self.critics.extract(rollout)
            valuations = self._read(rollout, features)
            log = dict(self.critics.fit(rollout, generator, features))
        if self.backward_critics is not None:
            # Read before they learn from the rollout: what they explain of it is then no memory of it.
            read = [valuations[key] for key in self.nonlinear_keys]
            expected = [expect(valuation.here[rollout.starts], valuation.weight) for valuation in read]
            self.backward_critics.fit_to_past(rollout, expected, generator)
        return valuations, log | {"explained_variance": self._explain(rollout, valuations[self.objective_key])}

    def _read(self, rollout: Rollout, features: Features | None = None) -> Valuations:
        return {key: self.read(key, rollout, features) for key in self.critics.keys}

    def read(self, key: SignalKey, rollout: Rollout, features: Features | None = None) -> Valuation:
        """What the critics say of a signal: what follows every transition, and where that matters what came before."""
        valuation = self.critics.value(key, rollout, self.atoms, features)
        if key not in self.nonlinear_keys:
            return valuation
        signal, discount = rollout.signals[key[0]], key[1]
        if self.backward_critics is not None:
            expected = expect(valuation.here[rollout.starts], valuation.weight)
            past = self.backward_critics.describe(key, rollout, expected, self.partners)
        elif self.pooled:
            past = batch_past(signal, discount, rollout, self.partners)
        else:
            past = own_past(signal, discount, rollout)
        return replace(valuation, past=past)

    def _explain(self, rollout: Rollout, valuation: Valuation) -> float:
        """1 − Var(target − V) / Var(target), targets the λ-returns of the reward; 0 where these do not vary."""
        left = rollout.grid.sum_ahead(valuation.increments, self.problem.discount * self.gae_lambda)
        variance = (expect(valuation.here, valuation.weight) + left).var(unbiased=False)
        return (1 - left.var(unbiased=False) / variance).item() if variance > 0 else 0.0

    def assess(self, rollout: Rollout, valuations: Valuations) -> Assessment:
        risks = []
        for constraint, budget, credit in zip(
            self.problem.constraints, self.budget_keys, self.credit_keys, strict=True
        ):
            risk = self._estimate(constraint.measure, credit, rollout, valuations[credit])
            if credit != budget:
                # Credit is discounted, the bound is on the budget: that is read off whole episodes.
                returns = whole_episodes(rollout, "credit_discount").returns(*budget)
                estimate, error = constraint.measure.estimate(returns)
                risk = replace(risk, estimate=estimate, standard_error=error, plug_in=estimate)
            risks.append(risk)
        objective = self._estimate(self.problem.objective, self.objective_key, rollout, valuations[self.objective_key])
        return Assessment(objective, risks, log_risks(self.problem, self.budget_keys, rollout, objective, risks))

    def _estimate(self, measure: RiskMeasure, key: SignalKey, rollout: Rollout, valuation: Valuation) -> RiskEstimate:
        if self.atoms == 1 and not measure.linear:
            # One atom knows nothing of a distribution: the samples' own is logged, since no algorithm acts on it.
            risk, error = measure.estimate(rollout.whole().returns(*key))
            return RiskEstimate(risk, error, plug_in=risk, advantage=torch.zeros(len(rollout)))
        lam = self.gae_lambda if measure.linear else self.risk_lambda
        return estimate_risk(measure, key, rollout, valuation, lam, valuation.past)

    def combine(
        self, rollout: Rollout, assessment: Assessment, prices: ShadowPrices, generator: torch.Generator
    ) -> Direction:
        return Direction(combine_advantages(self.problem, rollout, assessment, prices))


def combine_advantages(problem: Problem, rollout: Rollout, assessment: Assessment, prices: ShadowPrices) -> Tensor:
    """A − Σ_i price_i · (±A_i), [n]: the advantage whose policy gradient is eq. 14; in phase I without A."""
    advantage = assessment.objective.advantage if prices.counts_objective else torch.zeros(len(rollout))
    for constraint, risk, price in zip(problem.constraints, assessment.risks, prices.values, strict=True):
        advantage = advantage - price * constraint.sign * risk.advantage
    return advantage


def log_risks(
    problem: Problem,
    budget_keys: Sequence[SignalKey],
    rollout: Rollout,
    objective: RiskEstimate,
    risks: Sequence[RiskEstimate],
) -> LogRow:
    """The learner's own view of objective and constraints, each under a column that carries its number."""
    whole = rollout.whole()
    row: LogRow = {
        "return": whole.returns("reward", problem.discount).mean().item(),
        "objective": objective.estimate,
    }
    for index, (constraint, key, risk) in enumerate(zip(problem.constraints, budget_keys, risks, strict=True)):
        row[f"risk_{index}"] = risk.estimate
        row[f"risk_se_{index}"] = risk.standard_error
        row[f"risk_plug_in_{index}"] = risk.plug_in
        row[f"risk_empirical_{index}"] = constraint.measure.estimate(whole.returns(*key))[0]
    return row


def whole_episodes(rollout: Rollout, name: str) -> Rollout:
    """Only the episodes that the environment ended; `name` is who needs them, for the error where there is none."""
    rollout = rollout.whole()
    if not rollout.ended.any():
        raise SettingsError(f"{name}: learns from whole episodes, but none ends within `steps`: allow more steps.")
    return rollout


class Utility:
    """What u is worth seen from every transition: U_t = E[u(c_t + γ^t Y)] for distributions Y of the return-to-go.

    u belongs to an episode's s0 (the paper's ρ is a mean over s0), c_t to its past, over which the mean is taken.
    """

    def __init__(
        self,
        measure: RiskMeasure,
        first: Tensor,
        discount: float,
        rollout: Rollout,
        past: Past,
        probabilities: Tensor | None = None,
    ) -> None:
        """first: [E, N] distributions at the episodes' s0. probabilities: [N] of atoms, here and in what is called."""
        self._weight = discount ** rollout.step.to(first.dtype)
        self._probabilities = probabilities
        self._influence = measure.influence(first, probabilities)
        self._past = past
        self._pooled = self._pool(past)

    def __call__(self, distribution: Tensor, index: Tensor | None = None) -> Tensor:
        """Distributions [m, N] at the transitions `index` [m] (None: all) to utilities [m]."""
        pooled, weight = self._pooled, self._weight
        if index is not None:
            pooled, weight = self._pool(self._past.take(index)), weight[index]
        return expect(pooled(weight.unsqueeze(-1) * distribution), self._probabilities)

    def _pool(self, past: Past) -> Pooled:
        if len(past.cumulated) == 1:
            # A single past is no mean: u itself, as precise as the critics are.
            own, before = self._influence.take(past.episode[0]), past.cumulated[0].unsqueeze(-1)
            return lambda points: own(before + points)
        return self._influence.take(past.episode).pool(past.cumulated, past.share)


def estimate_risk(
    measure: RiskMeasure,
    key: SignalKey,
    rollout: Rollout,
    valuation: Valuation,
    lam: float,
    past: Past | None = None,
) -> RiskEstimate:
    """ρ of Σ_t γ^t signal_t and its advantage, for the signal and discount of `key`.

    lam: decay of the increments, as λ in GAE. past: what came before each transition; None: the episode's own.
    """
    signal, discount = rollout.signals[key[0]], key[1]
    # [E, N]: Ŷ(s0)
    first = valuation.here[rollout.starts]
    plug_in = measure(first, valuation.weight)
    # [n]: γ^t
    weight = discount ** rollout.step.to(signal.dtype)
    if measure.linear:
        increments = weight * valuation.increments
        unweighted = valuation.increments
    else:
        past = past or own_past(signal, discount, rollout)
        utility = Utility(measure, first, discount, rollout, past, valuation.weight)
        # [n]: U after the transition less U before it
        increments = utility(signal.unsqueeze(-1) + discount * valuation.ahead) - utility(valuation.here)
        unweighted = increments / weight.clamp_min(LEAST_WEIGHT)
    # [E]
    per_episode = plug_in + rollout.per_episode(increments)
    spread = per_episode.std() if rollout.episodes > 1 else per_episode.new_tensor(float("inf"))
    return RiskEstimate(
        estimate=per_episode.mean().item(),
        standard_error=spread.item() / rollout.episodes**0.5,
        plug_in=plug_in.mean().item(),
        advantage=rollout.grid.sum_ahead(unweighted, discount * lam),
    )
