"""What CPO and PCPO share: a local model of the problem, and a line search that does not trust it blindly.

Around the current policy θ_k both algorithms look for a step x = θ − θ_k by (CPO, eq. 11)

    max  gᵀx   subject to   c_i + b_iᵀx ≤ 0,   ½ xᵀHx ≤ δ,

g and b_i gradients of objective and costs, c_i = −slack_i, H the Hessian of the mean KL divergence, never formed: its
products with vectors come from autograd, its inverse from conjugate gradients.

Units. With ω the ratio of new to old probability and A_i the advantage, cost i of the new policy is modelled as

    estimate_i + scale_i · mean((ω − 1) A_i),    scale_i = mean over episodes of Σ_t γ_i^t,

the mean running over all transitions of the batch. Summed over an episode the advantages count in units of the return,
hence the scale; it is exact for undiscounted budgets (γ_i = 1, scale = length of an episode) unless credit is
discounted (`credit_discount`), which leaves out what a step changes far ahead. For γ_i < 1 it replaces
the discounted distribution of states by the visited one of equal mass, as is usual for the objective, so that objective
and costs stand on one footing.

Measures. With quantile critics a cost may be any risk measure, also as the objective: A_i is then the risk advantage
that SDPO uses, `estimate_i` the same corrected estimate, of this rollout alone. The model stays first-order in the
distribution: it prices a change of the policy by the influence function at the current distribution, so what a step
changes of the influence function itself (its mean, its quantile) is left out, an error of the order of the step
squared, which neither the projection nor the line search sees. The published safety bounds are for expectations and
are not claimed here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from portfolio_sdpo.nn.networks import ObservationCodec, Policy
from portfolio_sdpo.rl.algorithms.ascent import describe_policy
from portfolio_sdpo.rl.algorithms.base import ActorCriticSettings, Algorithm, Problem, build_policy, refuse_nonlinear
from portfolio_sdpo.rl.algorithms.pricing import check_finite
from portfolio_sdpo.rl.estimators.base import Assessment, RiskEstimate
from portfolio_sdpo.rl.estimators.score import ScoreEstimator
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Rollout

Product = Callable[[Tensor], Tensor]
"""v ↦ Hv, both [P]."""


class TrustRegionSettings(ActorCriticSettings):
    """Settings of CPO and PCPO; the trust region sets the step, and `actor.learning_rate` and `anneal` are not read."""

    max_kl: float = Field(default=0.01, gt=0)
    """Radius δ of the trust region: largest mean KL divergence of the new policy from the old one."""
    cg_iterations: int = Field(default=10, ge=1)
    """Conjugate-gradient iterations for each product with H⁻¹."""
    damping: float = Field(default=0.1, ge=0)
    """Multiple of the identity added to H, as a fraction of the curvature gᵀHg / gᵀg along the gradient."""
    curvature_stride: int = Field(default=1, ge=1)
    """H is computed on every n-th transition, n being this number."""
    backtracks: int = Field(default=15, ge=1)
    """Step lengths tried before the policy is left as it is."""
    backtrack_ratio: float = Field(default=0.8, gt=0, lt=1)
    """Each length tried as a fraction of the one before."""
    pooled: bool | None = None
    """What risk advantages take an episode to have cumulated so far, as in `SdpoSettings`."""

    added_later: ClassVar[frozenset[str]] = ActorCriticSettings.added_later | {"pooled"}


@dataclass(frozen=True)
class LocalModel:
    """Objective and costs to first order, KL to second: all that a step is active by. P parameters, m constraints."""

    g: Tensor
    """[P] gradient of the objective"""
    b: Tensor
    """[m, P] gradients of the costs"""
    c: Tensor
    """[m] how far each cost is beyond its bound; negative inside"""
    h_g: Tensor
    """[P] H⁻¹g"""
    h_b: Tensor
    """[m, P] H⁻¹b_i"""
    delta: float
    """radius of the trust region"""

    @property
    def q(self) -> float:
        """gᵀH⁻¹g"""
        return float(self.g.double() @ self.h_g.double())

    @property
    def r(self) -> Tensor:
        """[m] b_iᵀH⁻¹g"""
        return self.b.double() @ self.h_g.double()

    @property
    def s(self) -> Tensor:
        """[m, m] b_iᵀH⁻¹b_j, symmetric although conjugate gradients are stopped early"""
        product = self.b.double() @ self.h_b.double().T
        return 0.5 * (product + product.T)

    @property
    def reach(self) -> Tensor:
        """[m] by how much each cost can change within the trust region, √(2δ b_iᵀH⁻¹b_i)"""
        return (2 * self.delta * self.s.diagonal().clamp_min(0)).sqrt()


@dataclass(frozen=True)
class Proposal:
    """What an algorithm would like to do."""

    step: Tensor
    """[P] change of the parameters"""
    prices: Tensor
    """[m] what a unit of each cost is worth in the objective"""
    recovery: bool = False
    """Whether the step only decreases costs"""


class TrustRegion:
    """One step per rollout: the algorithm proposes it by a local model, a line search shortens it until it is good."""

    def __init__(self, settings: TrustRegionSettings, problem: Problem, policy: Policy) -> None:
        self.settings = settings
        self.problem = problem
        self.policy = policy
        self.discounts = [problem.discount, *(discount for _, discount in problem.budget_keys())]

    def measure_slacks(self, risks: Sequence[RiskEstimate]) -> list[float]:
        """How far inside its bound each risk is, by the newest estimate alone."""
        check_finite(risks)
        return [
            constraint.slack(risk.estimate, risk.standard_error)
            for constraint, risk in zip(self.problem.constraints, risks, strict=True)
        ]

    def model(self, rollout: Rollout, assessment: Assessment, slacks: Sequence[float]) -> tuple[Surrogate, LocalModel]:
        """Objective and costs as seen from a rollout, and their local model."""
        surrogate = Surrogate(self.policy, rollout, self.scale_advantages(rollout, assessment))
        return surrogate, self.linearise(surrogate, rollout, slacks)

    def step(
        self,
        rollout: Rollout,
        surrogate: Surrogate,
        model: LocalModel,
        proposal: Proposal,
        slacks: Sequence[float],
    ) -> LogRow:
        """Move the policy by as much of the proposal as the line search accepts."""
        length = self.search(surrogate, model, proposal)
        log: LogRow = {}
        for index, slack in enumerate(slacks):
            log[f"slack_{index}"] = slack
            log[f"price_{index}"] = float(proposal.prices[index])
        log |= {"recovery": float(proposal.recovery), "step_length": length}
        return log | describe_policy(self.policy, rollout)

    def scale_advantages(self, rollout: Rollout, assessment: Assessment) -> Tensor:
        """[1 + m, n]: objective first, then costs with the sign in which more is worse, centred, times their scale."""
        advantages = [assessment.objective.advantage]
        for constraint, risk in zip(self.problem.constraints, assessment.risks, strict=True):
            advantages.append(constraint.sign * risk.advantage)
        return torch.stack(
            [
                (advantage - advantage.mean()) * ((discount**rollout.step).sum() / rollout.episodes)
                for advantage, discount in zip(advantages, self.discounts, strict=True)
            ]
        )

    def linearise(self, surrogate: Surrogate, rollout: Rollout, slacks: Sequence[float]) -> LocalModel:
        """Gradients of objective and costs at the current policy, and their products with H⁻¹."""
        gradients = surrogate.gradients()
        g, b = gradients[0], gradients[1:]
        product = curvature(self.policy, rollout.observation[:: self.settings.curvature_stride])
        along = float(g @ product(g) / (g @ g).clamp_min(torch.finfo(g.dtype).tiny))
        damping = self.settings.damping * max(along, 0.0)

        def multiply(v: Tensor) -> Tensor:
            return product(v) + damping * v

        solved = [conjugate_gradient(multiply, row, self.settings.cg_iterations) for row in gradients]
        model = LocalModel(
            g=g,
            b=b,
            c=-torch.tensor(slacks, dtype=torch.float64),
            h_g=solved[0],
            h_b=torch.stack(solved[1:]) if slacks else torch.zeros_like(b),
            delta=self.settings.max_kl,
        )
        # An infinite violation (no standard error is known) is beyond reach as well, by a number one can reckon with.
        return replace(model, c=torch.where(model.c.isinf(), 2 * model.reach.clamp_min(1e-6), model.c))

    @torch.no_grad()
    def search(self, surrogate: Surrogate, model: LocalModel, proposal: Proposal) -> float:
        """Backtracking line search; moves the policy and returns the accepted fraction of the step, 0 if none was.

        A length is accepted if the KL divergence stays within δ, no cost ends beyond its bound or, where it was beyond
        it, higher than before, and the objective improves. The last is not asked of a policy that is still infeasible,
        nor where the step itself promises no improvement (the L2 projection of PCPO).
        """
        improves = bool((model.c <= 0).all()) and not proposal.recovery and float(model.g @ proposal.step) > 0
        ceiling = model.c.clamp_min(0.0)
        start = parameters_to_vector(self.policy.parameters())
        for attempt in range(self.settings.backtracks):
            length = self.settings.backtrack_ratio**attempt
            assign(self.policy, start + length * proposal.step)
            changes, divergence = surrogate.changes(), surrogate.divergence()
            if (
                divergence <= self.settings.max_kl
                and (changes[0] >= 0 or not improves)
                and bool((model.c + changes[1:].double() <= ceiling).all())
            ):
                return length
        assign(self.policy, start)
        return 0.0


class TrustRegionAlgorithm(Algorithm):
    """One proposed step per rollout, inside a trust region; an algorithm is its `propose`."""

    accepts_nonlinear = True  # with quantile critics

    def __init__(
        self, settings: TrustRegionSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, build_policy(settings.actor, codec, action_space))
        if settings.critic.kind == "mean":
            refuse_nonlinear(settings.kind, problem, "use quantile critics, or sdpo,")
        self.estimator = ScoreEstimator(
            problem,
            codec,
            settings.critic,
            gae_lambda=settings.gae_lambda,
            pooled=settings.pooled,
            credit_discount=settings.credit_discount,
        )
        self.register_critics(self.estimator)
        self.trust_region = TrustRegion(settings, problem, self.policy)

    @abstractmethod
    def propose(self, model: LocalModel) -> Proposal:
        """The step that the algorithm would like to take."""

    def update(self, rollout: Rollout, iteration: int, generator: torch.Generator) -> LogRow:
        valuations, critic_log = self.estimator.fit_critics(rollout, generator)
        assessment = self.estimator.assess(rollout, valuations)
        slacks = self.trust_region.measure_slacks(assessment.risks)
        surrogate, model = self.trust_region.model(rollout, assessment, slacks)
        step_log = self.trust_region.step(rollout, surrogate, model, self.propose(model), slacks)
        return critic_log | assessment.log | step_log

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return self.estimator.optimisers()


class Surrogate:
    """Objective and costs of a new policy as seen from a rollout of the old one."""

    def __init__(self, policy: Policy, rollout: Rollout, advantages: Tensor) -> None:
        """advantages: [1 + m, n]"""
        self.policy = policy
        self.rollout = rollout
        self.advantages = advantages
        with torch.no_grad():
            self.old = policy(rollout.observation)
            self.old_log_prob = policy.head.log_prob(self.old, rollout.action)

    def changes(self) -> Tensor:
        """[1 + m] mean((ω − 1) A) of each row: zero for the old policy."""
        log_prob = self.policy.head.log_prob(self.policy(self.rollout.observation), self.rollout.action)
        return self.advantages @ torch.expm1(log_prob - self.old_log_prob) / len(self.rollout)

    def divergence(self) -> float:
        """Mean KL(old ‖ new) over the visited states."""
        return self.policy.head.kl(self.old, self.policy(self.rollout.observation)).mean().item()

    def gradients(self) -> Tensor:
        """[1 + m, P] gradients of `changes` at the old policy."""
        parameters = list(self.policy.parameters())
        rows = [torch.autograd.grad(change, parameters, retain_graph=True) for change in self.changes()]
        return torch.stack([parameters_to_vector(row) for row in rows])


@torch.no_grad()
def assign(policy: Policy, vector: Tensor) -> None:
    """Copy all parameters from one vector [P]; unlike torch's `vector_to_parameters` they keep memory of their own."""
    start = 0
    for parameter in policy.parameters():
        end = start + parameter.numel()
        parameter.copy_(vector[start:end].view_as(parameter))
        start = end


def curvature(policy: Policy, observation: Tensor) -> Product:
    """v ↦ Hv, H the Hessian of mean KL(old ‖ ·) at the old policy, by differentiating twice."""
    parameters = list(policy.parameters())
    new = policy(observation)
    divergence = policy.head.kl(new.detach(), new).mean()
    slope = parameters_to_vector(torch.autograd.grad(divergence, parameters, create_graph=True))

    def product(v: Tensor) -> Tensor:
        return parameters_to_vector(torch.autograd.grad(slope @ v, parameters, retain_graph=True))

    return product


def conjugate_gradient(product: Product, target: Tensor, iterations: int, tolerance: float = 1e-10) -> Tensor:
    """x [P] with product(x) ≈ target [P], product symmetric and positive; stops once ‖residual‖² is small enough.

    >>> conjugate_gradient(lambda v: torch.tensor([2.0, 4.0]) * v, torch.tensor([2.0, 2.0]), iterations=2)
    tensor([1.0000, 0.5000])
    """
    x = torch.zeros_like(target)
    residual, direction = target.clone(), target.clone()
    squared = residual @ residual
    enough = tolerance * squared
    for _ in range(iterations):
        if squared <= enough:
            break
        image = product(direction)
        along = squared / (direction @ image)
        x += along * direction
        residual -= along * image
        before, squared = squared, residual @ residual
        direction = residual + (squared / before) * direction
    return x


def nearest_multipliers(gram: Tensor, violation: Tensor) -> Tensor | None:
    """Multipliers [m] of the point nearest to 0, in the norm of a matrix L, that satisfies violation + Bx ≤ 0.

    gram: BL⁻¹Bᵀ [m, m]. That point is x = −L⁻¹Bᵀμ with the μ ≥ 0 returned here; None if no point satisfies all rows.

    >>> nearest_multipliers(torch.eye(2).double(), torch.tensor([1.0, -1.0]).double())
    tensor([1., 0.], dtype=torch.float64)
    """
    for active in active_sets(len(violation)):
        inverse = spd_inverse(gram, active)
        if inverse is None:
            continue
        multipliers = torch.zeros_like(violation)
        multipliers[active] = inverse @ violation[active]
        left = violation - gram @ multipliers
        if (multipliers >= 0).all() and (left <= _tolerance(violation, gram)).all():
            return multipliers
    return None


def active_sets(count: int) -> Iterator[list[int]]:
    """All subsets of 0 … count−1, small ones first.

    These problems are convex and have a handful of constraints: the first subset that meets the optimality conditions
    with its constraints as equations is the solution, exactly and without a solver.
    """
    for size in range(count + 1):
        for active in combinations(range(count), size):
            yield list(active)


def spd_inverse(matrix: Tensor, active: list[int]) -> Tensor | None:
    """Inverse of the block of `active` rows and columns; None if these are not independent."""
    factor, failed = torch.linalg.cholesky_ex(matrix[active][:, active])
    return None if failed else torch.cholesky_inverse(factor)


def _tolerance(violation: Tensor, gram: Tensor) -> Tensor:
    """By how much a constraint may be missed for reasons of rounding, [m]."""
    return 1e-9 * (violation.abs() + gram.diagonal().clamp_min(0).sqrt())
