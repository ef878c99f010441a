"""Whether a challenger may replace the champion: both lineages on the same held-out days, with the same fees.

1. The limit held: the CVaR of the challenger's shielded track over all periods in the held-out days is within the
   limit, and on every day the shield could promise it. A challenger that broke the limit is not promoted, whatever it
   earned.
   Fewer than 20 periods that do not overlap, as in the default 126 sessions, are no test of the limit: they can show
   that it was broken, not that it is kept, and the reason says so. The promotion does not wait for more, since it is
   the shield that keeps the limit, and it is the same for challenger and champion; a longer `holdout` tests more.
2. It is not clearly worse: the interval of the difference in log growth (sessions resampled in pairs) does not lie
   wholly below 0. Some months cannot prove that a new model is better; they can show that it is clearly worse. Between
   equals the challenger wins, because it was trained on newer prices.

Only the limit decides where no champion can decide on these prices, and where the challenger continued from the
champion: on a later day the champion would train and decide in the same way, so there is no difference to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from portfolio_sdpo.backtest.intervals import LEAST_PERIODS, Bootstrap
from portfolio_sdpo.backtest.promise import check_promise
from portfolio_sdpo.backtest.simulate import Track
from portfolio_sdpo.backtest.statistics import growth_difference, summarise
from portfolio_sdpo.common.numbers import share
from portfolio_sdpo.portfolio.shield import CvarLimit

FIGURES = (
    "final_wealth",
    "total_return",
    "cagr",
    "volatility",
    "sharpe",
    "max_drawdown",
    "cvar_window",
    "turnover",
    "cost",
)


@dataclass(frozen=True)
class Verdict:
    """The result of an evaluation on held-out days."""

    promote: bool
    reason: str
    """Without a full stop, to be part of a longer sentence."""
    figures: dict[str, Any]


def evaluate_challenger(
    track: Track,
    shield_days: Sequence[dict[str, Any]],
    limit: CvarLimit,
    rival: Track | None,
    confidence: float,
) -> Verdict:
    """Compare a challenger's shielded track with the limit and with the champion's track.

    Parameters
    ----------
    track : the challenger's shielded track over the held-out days
    shield_days : what the shield found on each of these days, see `ShieldedStrategy.days`
    limit : the CVaR limit
    rival : the champion's shielded track on the same days; None if it is not compared
    confidence : level of the interval of the difference in growth
    """
    bootstrap = Bootstrap(level=confidence)
    promise = check_promise(track.returns, limit, bootstrap).to_json()
    unmet = sum(not day["meets"] or day["after"] < limit.bound for day in shield_days)
    figures: dict[str, Any] = {
        "holdout": {"first": str(track.dates[0]), "last": str(track.dates[-1]), "sessions": len(track.returns)},
        "limit": promise,
        "unmet": unmet,
        "challenger": _select_figures(track, limit),
        "champion": None,
        "difference": None,
    }
    kept = bool(promise["kept"]) and not unmet
    reason = (
        f"over {len(track.returns)} held-out sessions to {track.dates[-1]} its {limit.horizon}-session CVaR was "
        f"{share(promise['realised'], 4)} {'within' if promise['kept'] else 'beyond'} the limit of "
        f"{share(limit.bound, 4)}"
    )
    if not promise["tested"]:
        reason += f" (not tested: {promise['windows']} of the {LEAST_PERIODS} periods that a test needs)"
    if unmet:
        reason += f", and on {unmet} of {len(shield_days)} days the shield could not promise it"
    if rival is None:
        return Verdict(kept, reason, figures)
    figures["champion"] = _select_figures(rival, limit)
    difference = _compare_growth(track, rival, bootstrap)
    figures["difference"] = difference
    low, high = difference["interval"]
    worse = high < 0.0
    yearly = "yearly " if difference["span"] == "year" else ""
    reason += (
        f", and its {yearly}growth minus the champion's was {share(difference['growth'], 4, sign=True)} "
        f"({share(confidence, 4)} interval {share(low, 4, sign=True)} to {share(high, 4, sign=True)})"
    )
    if worse:
        reason += ", clearly worse"
    return Verdict(kept and not worse, reason, figures)


def _compare_growth(track: Track, rival: Track, bootstrap: Bootstrap) -> dict[str, Any]:
    if (track.returns == rival.returns).all():
        return {"growth": 0.0, "interval": [0.0, 0.0], "span": "track"}
    return growth_difference(track.returns, rival.returns, bootstrap, track.sessions_per_year)


def _select_figures(track: Track, limit: CvarLimit) -> dict[str, Any]:
    figures = summarise(track, alpha=limit.alpha, horizon=limit.horizon).to_json()
    return {name: figures[name] for name in FIGURES}
