"""Cleaning: faults of prices are reported, short gaps carried forward, nothing is filled from the future."""

from portfolio_sdpo.prices.cleaning.clean import CleanPrices, Repairs, clean, inspect
from portfolio_sdpo.prices.cleaning.report import Finding, Report

__all__ = ["CleanPrices", "Finding", "Repairs", "Report", "clean", "inspect"]
