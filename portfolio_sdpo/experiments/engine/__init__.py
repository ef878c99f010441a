"""The engine of all experiments: grids of runs, on this machine or on a Ray cluster."""
