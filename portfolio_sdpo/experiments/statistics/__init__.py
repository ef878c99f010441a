"""What a handful of runs can tell: evidence in one shape for all families, statistics across seeds, their figures."""
