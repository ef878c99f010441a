"""Stocks: question (D) of the paper."""
