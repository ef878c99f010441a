"""portfolio_sdpo: allocation policies that respect a risk limit while they learn and when they trade."""

__version__ = "0.1.0"
