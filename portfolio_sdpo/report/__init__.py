"""Pages, sections and figures of reports, shared by backtests, experiments and the dashboard."""
