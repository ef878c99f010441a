"""The options that `backtest` and `train` share; what is left out is the preset's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portfolio_sdpo.cli import _completion
from portfolio_sdpo.errors import SettingsError

if TYPE_CHECKING:
    from portfolio_sdpo.portfolio.presets import Plan


def _check_bound(bound: float | None) -> float | None:
    """What nearly everybody types first is a positive share."""
    if bound is not None and not -1.0 < bound <= 0.0:
        raise SettingsError(f"--bound: a loss is negative, and a share: give -0.05 for 5 % (got {bound:g}).")
    return bound


def _check_alpha(alpha: float | None) -> float | None:
    if alpha is not None and not 0.0 < alpha < 1.0:
        raise SettingsError(f"--alpha: must be a share between 0 and 1, such as 0.05 for 5 % (got {alpha:g}).")
    return alpha


def _check_fee(fee_bps: float | None) -> float | None:
    if fee_bps is not None and not 0.0 <= fee_bps < 10_000.0:
        raise SettingsError(
            f"--fee-bps: must be hundredths of a percent from 0 to below 10,000, such as 5 (got {fee_bps:g})."
        )
    return fee_bps


PresetName = Annotated[
    str,
    typer.Option(
        "--preset",
        metavar="NAME",
        help=f"Settings of whatever is left out: {', '.join(_completion.PRESETS)}.",
        autocompletion=_completion.presets,
    ),
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE.toml", help="Settings of the agents, before the preset's.")
]
SnapshotName = Annotated[
    str | None,
    typer.Option(
        "--snapshot",
        metavar="NAME",
        help="Prices.",
        show_default="the bundled sample",
        autocompletion=_completion.snapshots,
    ),
]
Alpha = Annotated[
    float | None,
    typer.Option(
        "--alpha",
        help="Tail fraction of the CVaR limit.",
        callback=_check_alpha,
        show_default="0.05 in the preset default",
    ),
]
Bound = Annotated[
    float | None,
    typer.Option(
        "--bound",
        help="Lowest CVaR allowed; a loss is negative.",
        callback=_check_bound,
        show_default="-0.05 in the preset default",
    ),
]
Horizon = Annotated[
    int | None,
    typer.Option(
        "--horizon",
        min=1,
        help="Sessions of a period that the limit is about.",
        show_default="15 in the preset default",
    ),
]
ScenarioKind = Annotated[
    str | None,
    typer.Option(
        "--scenarios",
        metavar="window|bootstrap",
        help="Train on the last sessions, or on resampled ones.",
        show_default="the preset's",
    ),
]
FeeBps = Annotated[
    float | None,
    typer.Option(
        "--fee-bps",
        help="Fee on what is traded, in hundredths of a percent.",
        callback=_check_fee,
        show_default="5 in the preset default",
    ),
]
CashKind = Annotated[
    str | None,
    typer.Option(
        "--cash",
        metavar="zero|tbill|RATE",
        help="What cash earns; a rate is yearly, 0.02 = 2 %.",
        show_default="zero in the preset default",
    ),
]
ExecutionKind = Annotated[
    str | None,
    typer.Option(
        "--execution",
        metavar="next-close|same-close",
        help="When a decision is traded: at the next close, or at the one just seen, as the paper assumes.",
        show_default="next-close in the preset default",
    ),
]
MaxWeight = Annotated[
    float | None,
    typer.Option("--max-weight", help="Largest weight of a stock, 0.25 = 25 %; what is above it is held in cash."),
]
MaxTurnover = Annotated[
    float | None,
    typer.Option("--max-turnover", help="Largest turnover of a decision; switching the whole account is 2."),
]
Groups = Annotated[
    Path | None,
    typer.Option("--groups", metavar="FILE.csv", help="Largest weights of groups: columns ticker, group, max_weight."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def resolve_plan(
    preset: str,
    config: Path | None,
    algos: Sequence[str] | None,
    alpha: float | None,
    bound: float | None,
    horizon: int | None,
    scenarios: str | None,
    fee_bps: float | None,
    cash: str | None,
    execution: str | None,
    shield: bool | None = None,
    shield_form: str | None = None,
    limits: Mapping[str, Any] | None = None,
) -> Plan:
    """The preset with what was given on the command line."""
    from portfolio_sdpo.portfolio.presets import plan, read_config

    return plan(
        preset,
        algos,
        config=None if config is None else read_config(config),
        alpha=alpha,
        bound=bound,
        horizon=horizon,
        scenarios=scenarios,
        fee_bps=fee_bps,
        cash=cash,
        execution=execution,
        shield=shield,
        shield_form=shield_form,
        limits=limits,
    )


def read_limits(max_weight: float | None, max_turnover: float | None, groups: Path | None) -> dict[str, Any]:
    """The fields of `Limits` that were given on the command line; what is wrong with one names its option."""
    from portfolio_sdpo.portfolio.groups import read_groups
    from portfolio_sdpo.portfolio.limits import Limits

    if max_weight is not None and not 0.0 < max_weight <= 1.0:
        raise SettingsError(f"--max-weight: must be a share above 0 and at most 1, such as 0.25 (got {max_weight:g}).")
    if max_turnover is not None and not 0.0 <= max_turnover < math.inf:
        raise SettingsError(f"--max-turnover: must be a share of the account from 0 on (got {max_turnover:g}).")
    given = {"max_weight": max_weight, "max_turnover": max_turnover}
    found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if groups is not None:
        found["groups"] = Limits(groups=read_groups(groups)).model_dump(mode="json")["groups"]
    return found
