"""Prices: sources, file layouts, cleaning and immutable snapshots."""
