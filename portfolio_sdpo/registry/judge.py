"""Whether a challenger may take the champion's place: both lines through the same held-out days, with the same fees.

1. The limit held: the CVaR of the challenger's shielded track over all periods in the held-out days is within the
   limit, and at every look the shield could promise it. Whoever broke the limit there is not promoted, however lucky.
2. Not worse beyond chance: the interval of the difference in log growth (sessions resampled in pairs) does not lie
   wholly below 0. Some months cannot prove that a new model is better; they can show that it is clearly worse. A
   challenger that is as good should win, because it knows the newer prices.

Where no champion can decide on these prices, the limit alone judges; also where the challenger went on from the
champion: asked on a later day, the champion would train on and decide the same, so there is no difference to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from portfolio_sdpo.backtest.coverage import check_promise
from portfolio_sdpo.backtest.simulate import Track
from portfolio_sdpo.backtest.statistics import Bootstrap, growth_difference, summarise
from portfolio_sdpo.portfolio.shield import CvarLimit

FIGURES = ("final_wealth", "cagr", "volatility", "sharpe", "max_drawdown", "cvar_window", "turnover", "cost")


@dataclass(frozen=True)
class Verdict:
    """What the held-out days say."""

    promote: bool
    reason: str
    """Without a full stop, for a longer sentence."""
    figures: dict[str, Any]


def judge(
    track: Track,
    looks: Sequence[dict[str, Any]],
    limit: CvarLimit,
    rival: Track | None,
    confidence: float,
) -> Verdict:
    """Compare a challenger's shielded track and the shield's looks at it with the limit and with the champion's."""
    bootstrap = Bootstrap(level=confidence)
    promise = check_promise(track.returns, limit, bootstrap).to_json()
    unmet = sum(not look["meets"] or look["after"] < limit.bound for look in looks)
    figures: dict[str, Any] = {
        "holdout": {"first": str(track.dates[0]), "last": str(track.dates[-1]), "sessions": len(track.returns)},
        "limit": promise,
        "unmet": unmet,
        "challenger": _figures(track, limit),
        "champion": None,
        "difference": None,
    }
    kept = bool(promise["kept"]) and not unmet
    reason = (
        f"over {len(track.returns)} held-out sessions to {track.dates[-1]} its {limit.horizon}-session CVaR was "
        f"{_percent(promise['realised'])} {'within' if promise['kept'] else 'beyond'} the limit of "
        f"{_percent(limit.bound)}"
    )
    if unmet:
        reason += f", and on {unmet} of {len(looks)} looks the shield could not promise it"
    if rival is None:
        return Verdict(kept, reason, figures)
    figures["champion"] = _figures(rival, limit)
    difference = _difference(track, rival, bootstrap)
    figures["difference"] = difference
    low, high = difference["interval"]
    worse = high < 0.0
    reason += (
        f", and its growth a year less the champion's was {_percent(difference['growth'], sign=True)} "
        f"({_percent(confidence)} interval {_percent(low, sign=True)} to {_percent(high, sign=True)})"
    )
    if worse:
        reason += ", clearly worse"
    return Verdict(kept and not worse, reason, figures)


def _difference(track: Track, rival: Track, bootstrap: Bootstrap) -> dict[str, Any]:
    if (track.returns == rival.returns).all():
        return {"growth": 0.0, "interval": [0.0, 0.0]}
    return growth_difference(track.returns, rival.returns, bootstrap)


def _figures(track: Track, limit: CvarLimit) -> dict[str, Any]:
    figures = summarise(track, alpha=limit.alpha, horizon=limit.horizon).to_json()
    return {name: figures[name] for name in FIGURES}


def _percent(share: float, *, sign: bool = False) -> str:
    return f"{100 * share:{'+' if sign else ''}.4g} %"
