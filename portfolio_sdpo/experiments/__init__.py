"""The paper's experiments as declared grids, the runner, what they are measured against, summary and figures.

`presets` declares, `cases` names the runs, `runner` makes them with `probe` looking on, `references` says what could be
had, `summary` and `report` put it into figures and words, `figures` into pictures.
"""
