"""Whether the best of many strategies is better than luck: Hansen's SPA and the model confidence set, from `arch`.

Who compares many strategies and shows the best one has found a good one or good luck. Two tests answer for all of them
at once, at the same risk (`same_risk`), so that nobody wins by taking more of it:

- the test for superior predictive ability (Hansen, 2005) asks whether any strategy grows faster than a reference. A
  small p-value says that the best of them does, even though it was picked afterwards;
- the model confidence set (Hansen, Lunde and Nason, 2011) asks for no reference: it leaves out one strategy after the
  other as long as the rest can be told apart. What stays holds the best one with the stated confidence, and a set that
  holds nearly everything says that the sample is too short to tell them apart.

Both resample sessions in blocks and are seeded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from portfolio_sdpo.backtest.intervals import LEAST_PERIODS, Bootstrap
from portfolio_sdpo.backtest.same_risk import excess_growth, find_shares, scale_with_cash
from portfolio_sdpo.backtest.statistics import varies
from portfolio_sdpo.common.files import json_ready
from portfolio_sdpo.common.plugins import require_extra
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Array


@dataclass(frozen=True)
class Superiority:
    """What the tests found over strategies at the same risk."""

    reference: str
    """What the others are tested against."""
    best: str
    """The one that grew fastest at the reference's risk, or it at theirs."""
    spa: float
    """p-value (Hansen's consistent one) of "no strategy grows faster than the reference"."""
    confidence_set: tuple[str, ...]
    """Strategies that may be the best, at the bootstrap's level of confidence, in the order given."""
    p_values: Mapping[str, float]
    """Of the model confidence set: a strategy is in it where this is at least 1 − level."""
    left_out: tuple[str, ...]
    """Strategies that are as good as cash, took no risk, or do what one before them does."""

    def to_json(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return json_ready(asdict(self))


def judge_superiority(
    tracks: Mapping[str, Array],
    reference: str,
    cash_returns: Array,
    limit: CvarLimit,
    bootstrap: Bootstrap,
    per_year: float = SESSIONS_PER_YEAR,
) -> Superiority | None:
    """Test strategies, returns [D] by name, against the reference and against each other.

    None where there is nothing to test: fewer than `LEAST_PERIODS` periods that do not overlap, or fewer than two
    strategies that take risk, the reference among them.
    """
    compared = _select_compared(tracks, reference, cash_returns, per_year)
    left_out = tuple(name for name in tracks if name not in compared)
    if len(cash_returns) // limit.horizon < LEAST_PERIODS or len(compared) < 2 or reference not in compared:
        return None
    paths = np.stack(list(compared.values()))
    shares, _ = find_shares(paths, cash_returns, limit)
    if not np.isfinite(shares).all():
        return None
    require_extra("A test of superiority", "arch", "backtest")
    from arch.bootstrap import MCS, SPA

    growth = dict(zip(compared, np.log1p(scale_with_cash(paths, cash_returns, shares)), strict=True))
    excess = {
        name: _excess_growth(compared[name], compared[reference], cash_returns, limit)
        for name in compared
        if name != reference
    }
    options: dict[str, Any] = {
        "reps": bootstrap.draws,
        "block_size": bootstrap.block_length(np.mean(list(excess.values()), axis=0), limit.horizon),
        "bootstrap": "stationary",
        "seed": bootstrap.seed,
    }
    # Losses are growth with the sign turned; against the reference only differences count.
    spa = SPA(np.zeros(len(cash_returns)), -np.stack(list(excess.values()), axis=1), **options)
    spa.compute()
    models = MCS(-np.stack(list(growth.values()), axis=1), size=1.0 - bootstrap.level, **options)
    models.compute()
    names = list(growth)
    p_values = {names[int(str(row))]: float(value) for row, value in models.pvalues["Pvalue"].items()}
    means = {reference: 0.0} | {name: float(each.mean()) for name, each in excess.items()}
    return Superiority(
        reference=reference,
        best=max(means, key=lambda name: means[name]),
        spa=float(spa.pvalues["consistent"]),
        confidence_set=tuple(names[row] for row in sorted(int(str(row)) for row in models.included)),
        p_values={name: p_values[name] for name in names},
        left_out=left_out,
    )


def _select_compared(
    tracks: Mapping[str, Array], reference: str, cash_returns: Array, per_year: float
) -> dict[str, Array]:
    """Those that take risk and do not repeat one before them; the reference comes before all others."""
    compared: dict[str, Array] = {}
    for name in sorted(tracks, key=lambda name: name != reference):
        repeats = any(np.allclose(tracks[name], other, rtol=0.0, atol=1e-12) for other in compared.values())
        if varies(tracks[name] - cash_returns, per_year) and not repeats:
            compared[name] = tracks[name]
    return {name: compared[name] for name in tracks if name in compared}


def _excess_growth(returns: Array, reference: Array, cash_returns: Array, limit: CvarLimit) -> Array:
    """[D] log growth in excess of the reference's, the riskier of the two scaled down."""
    pair = np.stack([returns, reference])
    return excess_growth(pair, cash_returns, find_shares(pair, cash_returns, limit)[0])
