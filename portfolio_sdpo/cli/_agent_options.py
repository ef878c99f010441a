"""The options that `backtest` and `train` share; what is left out is the preset's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from portfolio_sdpo.cli import _completion
from portfolio_sdpo.errors import SettingsError

if TYPE_CHECKING:
    from portfolio_sdpo.portfolio.presets import Plan


def _a_loss(bound: float | None) -> float | None:
    """What nearly everybody types first is a positive share."""
    if bound is not None and bound > 0:
        raise SettingsError(f"--bound: a loss is negative, and a share: give -0.05 for 5 % (got {bound:g}).")
    return bound


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
        help="Prices; the bundled sample by default.",
        autocompletion=_completion.snapshots,
    ),
]
Alpha = Annotated[float | None, typer.Option("--alpha", help="Tail fraction of the CVaR limit.")]
Bound = Annotated[
    float | None, typer.Option("--bound", help="Lowest CVaR allowed; a loss is negative.", callback=_a_loss)
]
Horizon = Annotated[int | None, typer.Option("--horizon", help="Sessions of a period that the limit is about.")]
ScenarioKind = Annotated[
    str | None,
    typer.Option("--scenarios", metavar="window|bootstrap", help="Train on the last sessions, or on resampled ones."),
]
FeeBps = Annotated[float | None, typer.Option("--fee-bps", help="Fee on what is traded, in hundredths of a percent.")]
CashKind = Annotated[
    str | None,
    typer.Option("--cash", metavar="zero|tbill|RATE", help="What cash earns; a rate is yearly, 0.02 = 2 %."),
]
ExecutionKind = Annotated[
    str | None,
    typer.Option(
        "--execution",
        metavar="next-close|same-close",
        help="When a decision is traded: at the next close, or at the one just seen, as the paper assumes.",
    ),
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
    )
