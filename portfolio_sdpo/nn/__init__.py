"""Quantile critics and their loss, trunks and policy heads."""
