"""What tables, figures and pages call an agent; free of torch, so that a page with results opens quickly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def make_agent_title(label: str, settings: Mapping[str, Any]) -> str:
    """How readers see an agent: an agent that is called by its algorithm is shown with its estimator.

    settings: of the agent, as they are written down (`AgentSettings.model_dump`).

    >>> make_agent_title("sdpo", {"learner": {"kind": "analytic"}})
    'SDPO (analytic)'
    """
    learner = settings.get("learner") or {}
    kind = learner.get("kind")
    # What trains by gradients through the reward is SDPO with the analytic estimator, the shared policy as well.
    by_analytic = kind in ("analytic", "shared")
    algorithm, estimator = ("sdpo", kind) if by_analytic else (kind, learner.get("estimator"))
    if label != algorithm:
        return label
    return f"{label.upper()} ({estimator})" if algorithm == "sdpo" and estimator else label.upper()
