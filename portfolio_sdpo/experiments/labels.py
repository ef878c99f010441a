"""How an algorithm's label is written for readers, in tables, figures and verdicts alike."""

from __future__ import annotations

NAMES = {
    "ppo": "PPO",
    "sdpo": "SDPO",
    "pd-cvar": "PD-CVaR",
    "pd-var": "PD-VAR",
    "ipo": "IPO",
    "cpo": "CPO",
    "pcpo": "PCPO",
    "sdpo-trajectory": "SDPO, no critics",
    "pd-sdpo": "PD-SDPO",
    "pd-trajectory": "PD-SDPO, no critics",
    "sdpo-cvar": "SDPO for CVaR",
    "sdpo-mean": "SDPO for the mean",
}
"""Label → name."""


def display_name(label: str) -> str:
    """The name of a label; a number behind a known label is its α, and an unknown label stands for itself.

    >>> display_name("pd-cvar"), display_name("sdpo-0.05"), display_name("mine")
    ('PD-CVaR', 'SDPO α = 0.05', 'mine')
    """
    kind, _, alpha = label.rpartition("-")
    return NAMES.get(label) or (f"{NAMES[kind]} α = {alpha}" if kind in NAMES else label)
