"""An agent trained up to the last close, on disk and back: what is served later stands on such a folder.

config.json          all settings, version, data with its hash, assets, days, weights for today
policy.safetensors   the learner (`rl.checkpoint`)
metrics.parquet      the trace of the training
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo import __version__
from portfolio_sdpo.common.files import CONFIG, FolderStore, make_id, to_json, to_parquet
from portfolio_sdpo.errors import CheckpointError, SettingsError
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.market import Array, Cash, Market, all_cash, load_latest, named_weights
from portfolio_sdpo.portfolio.resume import resume_training
from portfolio_sdpo.portfolio.shared_policy_agent import SharedPolicyAgent, build_agent
from portfolio_sdpo.portfolio.shield import shield_within
from portfolio_sdpo.rl.checkpoint import checkpoint_bytes, fingerprint

FOLDERS = FolderStore("agent", "train", "agents")
POLICY_FILE = "policy.safetensors"
TRACE_FILE = "metrics.parquet"
PARTS = (CONFIG, POLICY_FILE, TRACE_FILE)


@dataclass(frozen=True, eq=False)
class TrainedAgent:
    """Where an agent was written, and what is known of it."""

    folder: Path
    agent: Agent
    config: dict[str, Any]
    """`config.json`; `today` holds the weights before and after the shield and what is promised about them."""


def train_agent(
    settings: AgentSettings,
    *,
    snapshot: str | None = None,
    cash: Cash = "zero",
    seed: int = 0,
    label: str = "sdpo",
    folder: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> TrainedAgent:
    """Train an agent on everything up to the last close, as before a first decision, and write it to a new folder.

    `progress` is called with the number of updates so far; there will be `settings.first` of them. Ctrl-C saves them,
    and the same training resumes there, to the same bytes.
    """
    FOLDERS.check_free(folder or FOLDERS.new_folder("new"))
    if seed < 0:
        raise SettingsError(f"seed: must not be negative (got {seed}).")
    market, data = load_latest(snapshot, cash)
    agent = build_agent(settings, seed, label)
    with resume_training(agent, len(market.assets), {"cash": cash, **data}, progress):
        agent.decide(market, all_cash(len(market.assets)))
        config = describe(agent, market, cash, data)
        folder = folder or FOLDERS.new_folder(config["id"])
        FOLDERS.write(folder, to_parts(agent, config))
    return TrainedAgent(folder, agent, config)


def describe(agent: Agent, market: Market, cash: Cash, data: dict[str, Any]) -> dict[str, Any]:
    """`config.json` of an agent that has been trained up to the last close of the market."""
    weights = agent.decide(market, all_cash(len(market.assets)))
    config = {
        "package_version": __version__,
        "label": agent.name,
        "seed": agent.seed,
        "settings": agent.settings.model_dump(mode="json"),
        "cash": cash,
        "assets": list(market.assets),
        "as_of": str(agent.as_of),
        "updates": len(agent.trace),
        "run": fingerprint([__version__, *agent.identity, data["sha256"]]),
        "today": today(agent, market, weights),
        "data": data,
    }
    created = datetime.now(UTC).replace(microsecond=0)
    return {"id": make_id(created, config), "created_at": created.isoformat(), **config}


def to_parts(agent: Agent, config: dict[str, Any]) -> dict[str, bytes]:
    """The content of an agent's files by name."""
    assert agent.learner is not None
    return {
        CONFIG: to_json(config),
        POLICY_FILE: checkpoint_bytes(agent.learner, config["updates"], config["run"]),
        TRACE_FILE: to_parquet(pd.DataFrame(agent.trace)),
    }


def load_agent(folder: Path) -> Agent:
    """The agent as it was after its training: at the same close it decides the same, to the last bit.

    At a later close it trains on before it decides.
    """
    return agent_from_parts(read_parts(folder), folder)


def read_parts(folder: Path) -> dict[str, bytes]:
    """The content of an agent's files by name: all that an agent is."""
    return {name: FOLDERS.read(folder, name) for name in PARTS}


def agent_from_parts(parts: Mapping[str, bytes], folder: Path) -> Agent:
    """The agent with these files, wherever they are kept; the folder is only named in what is said of damage."""
    config = FOLDERS.parse_json(parts[CONFIG], folder, CONFIG)
    try:
        agent = build_agent(AgentSettings.from_record(config["settings"]), int(config["seed"]), str(config["label"]))
        assets, as_of, run = config["assets"], np.datetime64(config["as_of"], "D"), config["run"]
    except (KeyError, TypeError, ValueError) as error:
        raise FOLDERS.make_damage_error(folder, CONFIG, error) from None
    try:
        trace = pd.read_parquet(io.BytesIO(parts[TRACE_FILE])).to_dict("records")
    except Exception as error:
        raise FOLDERS.make_damage_error(folder, TRACE_FILE, error) from None
    try:
        agent.restore(parts[POLICY_FILE], run, assets, as_of, [{str(key): row[key] for key in row} for row in trace])
    except CheckpointError as error:
        raise CheckpointError(f"{folder / POLICY_FILE}: {error}") from None
    return agent


def today(
    agent: Agent, market: Market, weights: Array, promised: float | None = None, held: Array | None = None
) -> dict[str, Any]:
    """Weights before and after the shield, and their CVaR against the limit: as trained for, and on the past.

    promised: what `estimate_promise` of this agent at this close is, if it is known. held: what the account holds [A],
    from which a limit on turnover counts.
    """
    limit, limits = agent.settings.limit, agent.settings.limits
    checked = shield_within(weights, market, limit, limits, held=held, form=agent.settings.shield_form)
    return {
        "weights": named_weights(market.assets, weights),
        "shielded": named_weights(market.assets, checked.weights),
        "limit": limit.bound,
        "promised": agent.estimate_promise(market) if promised is None else promised,
        "past": checked.before,
        "past_shielded": checked.after,
        "kappa": checked.kappa,
        "removed": list(checked.removed),
        "meets": checked.meets,
        "findings": list(checked.findings),
        "traded": checked.traded,
        **({"evidence": agent.describe_evidence()} if isinstance(agent, SharedPolicyAgent) else {}),
    }
