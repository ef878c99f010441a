"""The experiments: declared grids of runs, what they are compared with, summaries, tables and figures.

study, catalogue    one shape for every experiment, and all of them by name
cmdp, safety, stocks   the families; each has {declared, study, summary, report, figures}.py
engine              makes the runs of a grid, on this machine or on a Ray cluster, and resumes them
statistics          what the seeds tell together
paper               the paper's claims, verdicts on them, and `reproduce`
tables, style       names, spreads and terminal tables, and the look of figures, shared by all families
"""
