"""The paper's question (D) as a declared experiment: PPO and SDPO at three α's trade nine stocks and cash in 2019.

The agents are those of the preset `paper-stocks`: before every close they train on the last 15 sessions replayed. The
paper's table leaves open how weights come from logits and how long a day's batch is ascended. Here logits are bounded,
in a form that was chosen on a toy and on 2018, and the steps are 50. Three start dates tell the luck of the day from
the rest, and variants change one thing each. The benchmarks are backtested with the same dates, prices and accounting.
Every label has its own α, so each is a backtest of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from portfolio_sdpo.backtest.run import BacktestSettings, DeclaredAgent
from portfolio_sdpo.backtest.strategies import STRATEGIES
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.experiments.engine.grid import select_algorithms
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.presets import preset
from portfolio_sdpo.portfolio.shared_policy_agent import build_agent
from portfolio_sdpo.portfolio.shield import CvarLimit
from portfolio_sdpo.settings import Settings, check_seeds

BENCHMARKS = "benchmarks"
"""Label of the backtest of all benchmarks."""


class StocksExperiment(Settings):
    """Some agents, several seeds, some benchmarks, one stretch of time; the bundled prices, no fee, cash earns 0."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    title: str
    question: str
    algorithms: dict[str, AgentSettings] = Field(min_length=1)
    """Label → settings; a label is part of a folder's name."""
    shown: tuple[str, ...] = Field(min_length=1)
    """Labels that are run unless others are asked for."""
    seeds: tuple[int, ...] = Field(default=tuple(range(10)), min_length=1)
    strategies: tuple[str, ...] = tuple(STRATEGIES)
    limit: CvarLimit
    """What benchmarks are measured by, and `maximum-return` keeps to."""
    start: date
    """Day of the first decision."""
    end: date

    @field_validator("algorithms")
    @classmethod
    def _labelled(cls, algorithms: dict[str, AgentSettings]) -> dict[str, AgentSettings]:
        for label, agent in algorithms.items():
            if label == BENCHMARKS or not label.replace("-", "").replace(".", "").isalnum():
                raise ValueError(f"{label!r} cannot be a label: use letters, digits, dots and dashes")
            if agent.fee:
                raise ValueError(f"{label} has a fee, and this experiment has none")
        return algorithms

    @field_validator("shown")
    @classmethod
    def _check_known(cls, shown: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if set(shown) - set(info.data.get("algorithms", shown)):
            raise ValueError("must be labels of the algorithms")
        return shown

    _check_seeds = field_validator("seeds")(check_seeds)

    def with_changes(
        self,
        *,
        iterations: int | None = None,
        seeds: tuple[int, ...] | None = None,
        algorithms: tuple[str, ...] | None = None,
    ) -> StocksExperiment:
        """The same with so many updates a day, other seeds, or these of its algorithms."""
        shown = self.shown if algorithms is None else select_algorithms(self.name, self.algorithms, algorithms)
        agents = self.algorithms
        if iterations is not None:
            if iterations < 1:
                raise SettingsError(f"iterations: there must be at least 1 update a day (got {iterations}).")
            agents = {label: _change(agent, first=iterations, further=iterations) for label, agent in agents.items()}
        return StocksExperiment(
            **{**dict(self), "algorithms": agents, "shown": shown, "seeds": self.seeds if seeds is None else seeds}
        )

    @property
    def steps(self) -> int:
        """Optimiser steps a day of the first agent shown."""
        agent = self.algorithms[self.shown[0]]
        return agent.further * getattr(agent.learner, "epochs", 1) * getattr(agent.learner, "minibatches", 1)

    def backtest(self, label: str, seeds: Iterable[int]) -> BacktestSettings:
        """The backtest of an agent with these seeds, measured at its own α; or that of all benchmarks."""
        common: dict[str, Any] = {"start": self.start, "end": self.end, "execution": "same-close"}  # the paper's
        if label == BENCHMARKS:
            return BacktestSettings(**common, strategies=self.strategies, limit=self.limit)
        agent = self.algorithms[label]
        declared = DeclaredAgent(label=label, settings=agent.model_dump(mode="json"))
        return BacktestSettings(**common, strategies=(), agents=(declared,), limit=agent.limit, seeds=tuple(seeds))

    def agents(self, label: str, seeds: Iterable[int]) -> list[Agent]:
        """The agents of that backtest."""
        return [] if label == BENCHMARKS else [build_agent(self.algorithms[label], seed, label) for seed in seeds]


def _change(agent: AgentSettings, **changes: Any) -> AgentSettings:
    return AgentSettings.model_validate({**agent.model_dump(), **changes})


LOGIT_BOUND = 3.0
"""Of the declared reading's policies; chosen on a toy, its form on 2018 as well, see docs/results.md."""
STEPS = 50
"""Optimiser steps on a batch: ten epochs of five minibatches. A day has one batch, the paper's 1,280 steps. As many as
five batches of ten had before, at half the cost; other numbers were not compared."""
ALPHAS = (0.01, 0.05, 0.1)


def _agent(algo: str, alpha: float, bound: float | None, learner: dict[str, Any], **changes: Any) -> AgentSettings:
    """An agent of the preset `paper-stocks` with `STEPS` a batch and this bound on its policy's logits."""
    agent = preset("paper-stocks", algo, alpha=alpha)
    trained = agent.learner.model_dump()
    trained |= {"epochs": 10, "minibatches": STEPS // 10, "actor": {**trained["actor"], "logit_bound": bound}}
    return _change(agent, learner={**trained, **learner}, **{"first": 1, "further": 1, **changes})


def _agents(bound: float | None = LOGIT_BOUND, **changes: Any) -> dict[str, AgentSettings]:
    """PPO and SDPO at the paper's α's, with changes for all of them."""
    return {
        "ppo": _agent("ppo", 0.1, bound, {}, **changes),
        **{f"sdpo-{alpha:g}": _agent("sdpo", alpha, bound, {}, **changes) for alpha in ALPHAS},
    }


def _steps(number: int) -> dict[str, Any]:
    """So many optimiser steps a day, on as many batches as that takes."""
    return {"first": number // STEPS, "further": number // STEPS}


STOCKS = StocksExperiment(
    name="stocks",
    title="Nine stocks and cash through 2019, CVaR of 15 sessions ≥ 0",
    question="Does an agent with a bound on its losses end richer than one without, and does it keep the bound?",
    algorithms={**_agents(), "counterfactual-0.1": _agent("sdpo", 0.1, LOGIT_BOUND, {"estimator": "counterfactual"})},
    shown=("ppo", "sdpo-0.01", "sdpo-0.05", "sdpo-0.1"),
    limit=CvarLimit(bound=0.0, alpha=0.1, horizon=15),
    start=date(2019, 1, 2),
    end=date(2019, 12, 31),
)
"""`counterfactual-0.1` is SDPO with the estimator of that name, run only when asked for."""


def _variant(name: str, title: str, question: str, **changes: Any) -> StocksExperiment:
    fields = {"name": f"stocks-{name}", "title": f"{STOCKS.title}: {title}", "question": question, **changes}
    return StocksExperiment(**{**dict(STOCKS), **fields})


_OTHER_DAY = "Does the answer depend on the day on which the agents start?"
_HEAD = ("ppo", "sdpo-0.1")
START_DATES = (
    STOCKS,
    _variant("february", "from February 15", _OTHER_DAY, start=date(2019, 2, 15)),
    _variant("april", "from April 1", _OTHER_DAY, start=date(2019, 4, 1)),
)
"""The declared reading from three days on; what the paper claims is judged on all that are there."""
SENSITIVITIES = (
    *(
        _variant(
            f"{number}-steps",
            f"{number} optimiser steps a day",
            "Does the answer depend on how long the agents train?",
            algorithms=_agents(**_steps(number)),
            shown=_HEAD,
            seeds=(0, 1, 2),
        )
        for number in (500, 2000)
    ),
    _variant(
        "windows",
        "any 15 sessions of the last year",
        "Does the bound earn something where the CVaR sees more than one past?",
        algorithms=_agents(scenarios="bootstrap", block=1e9, history=252, paths=17),
        seeds=(0, 1, 2),
    ),
    _variant(
        "softmax",
        "free logits, the plain softmax",
        "What does the bound on the policy's logits change?",
        algorithms=_agents(None),
        shown=_HEAD,
    ),
)
"""One thing changed each."""


def other_starts(experiment: StocksExperiment) -> list[StocksExperiment]:
    """The experiment, changed as it may be, on the other start dates; none if it is of a single one."""
    if experiment.name not in {each.name for each in START_DATES}:
        return []
    return [
        StocksExperiment(**{**dict(experiment), "name": each.name, "title": each.title, "start": each.start})
        for each in START_DATES
        if each.name != experiment.name
    ]
