"""How SDPO obtains the gradient of a risk: interchangeable objects behind one protocol, `base.Estimator`."""

from __future__ import annotations

from typing import Any, Literal

EstimatorName = Literal["score", "pathwise", "counterfactual", "trajectory"]
"""The estimators that learn from rollouts; `analytic` needs a reward model instead."""


def name_estimator(settings: Any) -> str | None:
    """The estimator that an algorithm's or learner's settings stand for, None where there is no choice of one.

    >>> from portfolio_sdpo.rl.algorithms import PpoSettings, SdpoSettings
    >>> name_estimator(SdpoSettings(estimator="pathwise")), name_estimator(PpoSettings())
    ('pathwise', None)
    """
    name = getattr(settings, "estimator", None)
    return None if name is None else str(name)
