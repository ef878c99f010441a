"""Market data: sources of prices, file layouts, cleaning, immutable snapshots."""
