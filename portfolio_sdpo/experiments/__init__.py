"""The paper's experiments as declared grids, the runner, what they are measured against, summary and figures.

`grid` makes the runs of any experiment; what a run is each kind says for itself. On random CMDPs: `presets` declares,
`cases` names the runs, `runner` makes them with `probe` looking on, `references` says what could be had, `summary` and
`report` put it into figures and words, `figures` into pictures. Safety Gym (`safety*`) and stocks (`stocks*`) likewise.
"""
