"""Files of prices in the layouts that people have them in: recognise, read, write."""

from portfolio_sdpo.prices.layouts.options import LAYOUTS
from portfolio_sdpo.prices.layouts.read import read_prices
from portfolio_sdpo.prices.layouts.write import write_prices

__all__ = ["LAYOUTS", "read_prices", "write_prices"]
