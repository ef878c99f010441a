"""What a user holds, by ticker, as the weights [A] that strategies are asked with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from portfolio_sdpo.errors import WeightsError, did_you_mean
from portfolio_sdpo.portfolio.limits import check_weights
from portfolio_sdpo.portfolio.market import CASH, Array, all_cash

if TYPE_CHECKING:
    import pandas as pd


def read_held(held: Mapping[str, float] | pd.Series | None, assets: tuple[str, ...]) -> Array:
    """[A] what is held, from shares of wealth by ticker; `CASH` is what remains unless it is given.

    >>> read_held({"MSFT": 0.4}, ("CASH", "AAPL", "MSFT")).tolist()
    [0.6, 0.0, 0.4]
    """
    if held is None:
        return all_cash(len(assets))
    shares = {str(name): share for name, share in dict(held).items()}
    strange = next((name for name in shares if name not in assets), None)
    if strange is not None:
        raise WeightsError(
            f"held: there is no {strange}{did_you_mean(strange, assets)}; there are {', '.join(assets)}."
        )
    try:
        weights = np.array([float(shares.get(asset, 0.0)) for asset in assets])
    except (TypeError, ValueError):
        raise WeightsError("held: every share must be a number, such as 0.25 for a quarter of the wealth.") from None
    if CASH not in shares:
        weights[0] = 1.0 - weights[1:].sum()
    try:
        return check_weights(weights, weights.shape)
    except WeightsError as error:
        raise WeightsError(f"held: {error}") from None
