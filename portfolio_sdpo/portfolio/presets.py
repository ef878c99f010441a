"""Named sets of choices: what agents learn from and how, and what the backtest around them reckons with.

`default` is what a user would hold: the policy that comes with the package and is trained already. `lstm` trains a
policy on the universe at hand, `lstm-same-close` does so for trades at the very close that a decision is made at, and
`paper-stocks` is the table of the paper's appendix. Each choice can be overruled, one by one or by a TOML file with
the fields of `AgentSettings`:

    preset("lstm", "sdpo", alpha=0.1)
    plan("paper-stocks", ["ppo"], config=read_config(Path("my.toml")))
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from portfolio_sdpo.errors import SettingsError, did_you_mean
from portfolio_sdpo.portfolio.accounting import Execution
from portfolio_sdpo.portfolio.agent import AgentSettings, name_kind
from portfolio_sdpo.portfolio.analytic import AnalyticSettings
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Cash, parse_cash
from portfolio_sdpo.portfolio.return_measures import Volatility
from portfolio_sdpo.portfolio.shared_policy import SharedPolicySettings
from portfolio_sdpo.portfolio.shield import CvarLimit, ShieldForm
from portfolio_sdpo.rl.algorithms import ActorSettings, PpoSettings, SdpoSettings
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.settings import Settings


class Preset(Settings):
    """A named set of choices."""

    agents: dict[str, AgentSettings] = Field(min_length=1)
    """By algorithm, all with the same limit; those that a backtest shows unless told otherwise come in `shown`."""
    shown: tuple[str, ...]
    fee_bps: float
    """Also what agents reckon with."""
    cash: Cash
    shield: bool


def _lstm() -> Preset:
    """Scenarios resampled from four years, scaled to today's volatility; the worst 5 % of periods may lose 5 %.

    Trained as it is deployed: decisions once a week, traded at the next close.
    """
    preset = _lstm_same_close()
    deployed: dict[str, Any] = {
        "execution": "next-close",
        "training": "as-deployed",
        "shield_form": "calibrated",
    }
    # Every path has as many decisions to make as there are in `every` overlapping periods.
    paths = {"sdpo": 128, "ppo": 85}
    agents = {
        algo: AgentSettings.model_validate({**agent.model_dump(), **deployed, "paths": paths[algo]})
        for algo, agent in preset.agents.items()
    }
    return preset.model_copy(update={"agents": agents})


def _lstm_same_close() -> Preset:
    """Episodes of daily decisions that start in cash, traded at the close that they are made at.

    Chosen on years before 2019.
    """
    common: dict[str, Any] = {
        "execution": "same-close",
        "training": "from-cash",
        "shield_form": "filtered",
        "limit": CvarLimit(bound=-0.05, alpha=0.05, horizon=15),
        "scenarios": "bootstrap",
        "history": 1008,
        "block": 1.0,
        "filtered": Volatility(),
        "shrink": 0.5,
        "every": 5,
        "eta": (500.0, 100_000.0),
    }
    sdpo = AgentSettings(
        **common,
        paths=512,
        first=500,
        further=10,
        learner=AnalyticSettings(learning_rate=3e-3, anneal=500),
    )
    ppo = AgentSettings(
        **common,
        paths=85,
        episodes=85,
        first=400,
        further=10,
        learner=PpoSettings(
            actor=ActorSettings(learning_rate=3e-3, anneal=400),
            critic=CriticSettings(kind="mean", epochs=2, minibatches=1),
            minibatches=1,
        ),
    )
    return Preset(agents={"sdpo": sdpo, "ppo": ppo}, shown=("sdpo",), fee_bps=5.0, cash="zero", shield=True)


def _default() -> Preset:
    """The policy that comes with the package, trained on decades of industries, behind the shield.

    Nothing is trained here: a decision is an update, which asks how far the policy may leave equal weights. PPO, which
    has no policy in the package, is that of `lstm`.
    """
    lstm = _lstm()
    sdpo = AgentSettings(limit=lstm.agents["ppo"].limit, first=1, further=1, learner=SharedPolicySettings())
    return lstm.model_copy(update={"agents": {"sdpo": sdpo, "ppo": lstm.agents["ppo"]}})


def _paper_stocks() -> Preset:
    """Table "Hyperparameters for experiments on stock transaction"; iterations a day are not in it."""
    common: dict[str, Any] = {
        "execution": "same-close",
        "training": "from-cash",
        "limit": CvarLimit(bound=0.0, alpha=0.1, horizon=15),
        "scenarios": "window",
        "episodes": 85,  # × 15 days: a batch of 1275 steps, the paper's 1280 up to the last episode
        "first": 5,
        "further": 5,
        "every": 1,
        "discount": 0.99,
        "eta": (60.0, 60.0),
    }
    actor = ActorSettings(hidden=(64, 64), learning_rate=1e-4)
    # Steps on the whole batch. Of a single path a critic learns as much from a quarter of the episodes.
    critic: dict[str, Any] = {
        "hidden": (64, 64),
        "learning_rate": 1e-3,
        "epochs": 2,
        "minibatches": 1,
        "transitions": 320,
    }
    learner: dict[str, Any] = {"actor": actor, "gae_lambda": 0.9, "clip": 0.1, "epochs": 5, "minibatches": 2}
    sdpo = SdpoSettings(critic=CriticSettings(kind="quantile", atoms=128, dimension=256, **critic), **learner)
    ppo = PpoSettings(critic=CriticSettings(kind="mean", **critic), **learner)
    return Preset(
        agents={"sdpo": AgentSettings(**common, learner=sdpo), "ppo": AgentSettings(**common, learner=ppo)},
        shown=("sdpo", "ppo"),
        fee_bps=0.0,
        cash="zero",
        shield=False,
    )


PRESETS: dict[str, Preset] = {
    "default": _default(),
    "lstm": _lstm(),
    "lstm-same-close": _lstm_same_close(),
    "paper-stocks": _paper_stocks(),
}
FOR_TRAINING = (
    *("scenarios", "history", "block", "filtered", "shrink", "paths", "episodes", "first", "discount", "eta"),
    "training",
)
"""Fields of `AgentSettings` that say nothing about a policy that is trained already."""
NO_AGENT = "none"
"""The algorithm of a backtest of benchmarks only."""


class Plan(NamedTuple):
    """What a preset comes to after the user's changes."""

    agents: dict[str, AgentSettings]
    """By algorithm, in the order asked for."""
    limit: CvarLimit
    fee_bps: float
    cash: Cash
    shield: bool
    shield_form: ShieldForm
    execution: Execution
    limits: Limits


def plan(
    name: str,
    algos: Sequence[str] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    alpha: float | None = None,
    bound: float | None = None,
    horizon: int | None = None,
    scenarios: str | None = None,
    fee_bps: float | None = None,
    cash: Any = None,
    shield: bool | None = None,
    shield_form: str | None = None,
    execution: str | None = None,
    limits: Mapping[str, Any] | None = None,
) -> Plan:
    """A preset with changes: what is given here counts before the `config`, and that before the preset.

    `algos`: of the preset, by default those that it shows, `["none"]` for none at all. `limits`: fields of `Limits`.
    """
    if name not in PRESETS:
        raise SettingsError(
            f"preset: there is no {name!r}{did_you_mean(name, PRESETS)}; there are {', '.join(PRESETS)}."
        )
    base = PRESETS[name]
    wanted = [] if algos == [NO_AGENT] else list(base.shown if algos is None else algos)
    unknown = next((algo for algo in wanted if algo not in base.agents), None)
    if unknown is not None:
        known = ", ".join([*base.agents, NO_AGENT])
        raise SettingsError(
            f"algo: there is no agent {unknown!r}{did_you_mean(unknown, base.agents)} in the preset {name}; "
            f"there are {known}."
        )
    if len(set(wanted)) < len(wanted):
        raise SettingsError(f"algo: name every agent once (got {', '.join(wanted)}).")
    config = dict(config or {})
    if isinstance(config.get("learner"), Mapping):
        config["learner"] = name_kind(config["learner"])
    fee = config.pop("fee", None)
    if fee_bps is None:
        fee_bps = base.fee_bps if fee is None else round(AgentSettings(fee=fee).fee * 1e4, 9)
    given = _present({"alpha": alpha, "bound": bound, "horizon": horizon})
    usual = {"limit": next(iter(base.agents.values())).limit.model_dump()}
    limit = CvarLimit.model_validate(_merge(_merge(usual, config), {"limit": given} if given else {})["limit"])
    # What is judged with is the same for all agents, and said once.
    shared = AgentSettings.model_validate(
        {
            field: config.get(field, getattr(next(iter(base.agents.values())), field)) if value is None else value
            for field, value in {"execution": execution, "shield_form": shield_form}.items()
        }
    )
    asked, changed = {"limits": config.pop("limits", {})}, _present(limits or {})
    caps = Limits.model_validate(_merge(asked, {"limits": changed} if changed else {})["limits"])
    changes = {
        "limit": limit.model_dump(),
        "limits": caps.model_dump(),
        "fee": fee_bps / 1e4,
        "execution": shared.execution,
        "shield_form": shared.shield_form,
        **_present({"scenarios": scenarios}),
    }
    starts = {algo: _start(base, algo, config) for algo in wanted}
    agents = {
        algo: AgentSettings.model_validate(_merge(_merge(start.model_dump(), config), changes))
        for algo, start in starts.items()
    }
    _check_used(starts, agents)
    return Plan(
        agents=agents,
        limit=limit,
        fee_bps=fee_bps,
        cash=base.cash if cash is None else _cash(cash),
        shield=base.shield if shield is None else shield,
        shield_form=shared.shield_form,
        execution=shared.execution,
        limits=caps,
    )


def preset(name: str, algo: str = "sdpo", **changes: Any) -> AgentSettings:
    """The agent of a preset, with the changes that `plan` knows.

    >>> preset("paper-stocks", "ppo", alpha=0.01).limit
    CvarLimit(bound=0.0, alpha=0.01, horizon=15)
    """
    return plan(name, [algo], **changes).agents[algo]


def read_config(path: Path) -> dict[str, Any]:
    """A TOML file with fields of `AgentSettings`, checked when they are used."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"config: {path} cannot be read ({error.strerror}); name a TOML file.") from None
    except ValueError as error:
        raise SettingsError(f"config: {path} is not TOML ({error}); correct it.") from None


def _start(base: Preset, algo: str, config: Mapping[str, Any]) -> AgentSettings:
    """The agent that the config changes: that of the preset, or of `lstm` where the config names a learner to train."""
    agent, learner = base.agents[algo], config.get("learner", {})
    if not isinstance(agent.learner, SharedPolicySettings) or isinstance(learner, SharedPolicySettings):
        return agent
    if not isinstance(learner, Mapping) or learner.get("kind", "shared") != "shared":
        return PRESETS["lstm"].agents[algo]
    trains = type(PRESETS["lstm"].agents[algo].learner).model_fields.keys() - SharedPolicySettings.model_fields.keys()
    for field in learner:
        if field in trains:
            raise _trained_already(f"learner.{field}")
    return agent


def _check_used(starts: Mapping[str, AgentSettings], agents: Mapping[str, AgentSettings]) -> None:
    """Refuse changes to how agents train where none of them does."""
    if any(not isinstance(agent.learner, SharedPolicySettings) for agent in agents.values()):
        return
    for algo, agent in agents.items():
        for field in FOR_TRAINING:
            if getattr(agent, field) != getattr(starts[algo], field):
                raise _trained_already(field)


def _trained_already(field: str) -> SettingsError:
    return SettingsError(
        f"{field}: it says how a policy is trained, and this preset's is trained already; leave it out, or choose the "
        "preset lstm, which trains one on your prices."
    )


def _present(given: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in given.items() if value is not None}


def _cash(value: Any) -> Cash:
    try:
        return parse_cash(value)
    except ValueError as error:
        raise SettingsError(f"cash: {error} (got {value!r}).") from None


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The base with the changes in it, table by table; a table of another kind takes the place of the old one."""
    merged = dict(base)
    for field, value in changes.items():
        old = base.get(field)
        if not isinstance(old, Mapping) or not isinstance(value, Mapping):
            merged[field] = value
        elif value.get("kind", old.get("kind")) == old.get("kind"):
            merged[field] = _merge(old, value)
        else:
            merged[field] = dict(value)
    return merged
