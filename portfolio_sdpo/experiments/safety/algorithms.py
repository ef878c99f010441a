"""The algorithms that a Safety Gym experiment compares, alike in all that they share."""

from __future__ import annotations

from typing import Any

from portfolio_sdpo.rl.algorithms import (
    ActorSettings,
    AnySettings,
    CpoSettings,
    IpoSettings,
    PcpoSettings,
    PpoLagrangianSettings,
    PpoSettings,
    SdpoSettings,
)
from portfolio_sdpo.rl.critics import CriticSettings

NOISE_AT_START = 0.1
"""No motion, and little noise: a start inside the bound. At 0.3 a robot drifts into hazards."""
NAMES = ("ppo", "ipo", "sdpo", "cpo", "pcpo")
"""Those that the paper compares."""


def make_algorithms(
    *,
    actor: float,
    clip: float,
    lam: float,
    epochs: int,
    minibatches: int,
    critic_epochs: int,
    critic_minibatches: int,
    smoothing: float,
    hidden: tuple[int, ...] = (256, 256),
    atoms: int = 128,
    dimension: int = 256,
    averaging: float = 0.99,
    target_lam: float = 0.99,
    transitions: int | None = None,
    memory: int = 1,
    initial_std: float = NOISE_AT_START,
    credit: float | None = None,
    multiplier: dict[str, float] | None = None,
) -> dict[str, AnySettings]:
    """PPO, IPO, SDPO, CPO and PCPO, and with settings of its `multiplier` PPO-Lagrangian.

    actor: the policy's learning rate. lam: λ of advantages. target_lam: λ of the critics' targets.
    """
    shared: dict[str, Any] = {
        "actor": ActorSettings(hidden=hidden, learning_rate=actor, initial_std=initial_std),
        "gae_lambda": lam,
        "credit_discount": credit,
    }
    fit: dict[str, Any] = {
        "hidden": hidden,
        "learning_rate": 1e-3,
        "target_lambda": target_lam,
        "transitions": transitions,
        "memory": memory,
        "fit_first": False,
        "epochs": critic_epochs,
        "minibatches": critic_minibatches,
        "averaging": averaging,
        "warm_up": 3,
    }
    mean = CriticSettings(kind="mean", **fit)
    # To the plain quantile loss a rare cost of hundreds pulls no harder than a cost of one; nearly squared it does, and
    # the expected cost, which is what is bounded here, is learnt as fast as by a mean critic.
    quantile = CriticSettings(kind="quantile", atoms=atoms, dimension=dimension, kappa=5.0, **fit)
    ascent: dict[str, Any] = {"clip": clip, "epochs": epochs, "minibatches": minibatches}
    found: dict[str, AnySettings] = {
        "ppo": PpoSettings(critic=mean, **shared, **ascent),
        "ipo": IpoSettings(critic=mean, smoothing=smoothing, **shared, **ascent),
        "sdpo": SdpoSettings(critic=quantile, smoothing=smoothing, risk_lambda=lam, **shared, **ascent),
        "cpo": CpoSettings(critic=mean, **shared),
        "pcpo": PcpoSettings(critic=mean, **shared),
    }
    if multiplier is not None:
        # The multiplier integrates the slack, so noise averages out there and not in a running estimate as well.
        found["ppo-lagrangian"] = PpoLagrangianSettings(critic=mean, smoothing=1.0, **multiplier, **shared, **ascent)
    return found
