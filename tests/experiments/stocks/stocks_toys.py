"""The stocks experiment as a toy, and what a page says in 80 columns."""

import io
from datetime import date

from rich.console import Console

from portfolio_sdpo.experiments.stocks.declared import STOCKS, StocksExperiment


def tiny(**changes) -> StocksExperiment:
    """A week, one update a day, networks of four."""
    limit = {"bound": 0.0, "alpha": 0.5, "horizon": 3}

    def small(agent, alpha):
        settings = agent.model_dump()
        settings |= {"limit": {**limit, "alpha": alpha}, "episodes": 4, "first": 1, "further": 1}
        settings["learner"]["actor"]["hidden"] = settings["learner"]["critic"]["hidden"] = (4, 4)
        settings["learner"]["critic"] |= {"atoms": 4, "dimension": 4}
        return settings

    fields = {
        "algorithms": {
            "ppo": small(STOCKS.algorithms["ppo"], 0.5),
            "sdpo-0.1": small(STOCKS.algorithms["sdpo-0.1"], 0.1),
            "counterfactual-0.1": small(STOCKS.algorithms["counterfactual-0.1"], 0.1),
        },
        "shown": ("ppo", "sdpo-0.1"),
        "seeds": (0, 1),
        "strategies": ("cash", "equal-weight"),
        "limit": limit,
        "end": date(2019, 1, 9),
    }
    return StocksExperiment(**{**dict(STOCKS), **fields, **changes})


def page(renderable) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(renderable)
    return console.file.getvalue()
