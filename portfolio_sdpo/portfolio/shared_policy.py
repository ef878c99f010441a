"""A trained policy for any universe: weights for a market at once, before the shield.

    policy = load_shipped_policy()                       # or SharedPolicy.load(path)
    deviation = earn_deviation(policy, history)          # portfolio.deviation: how far it may leave equal weights here
    weights = policy.allocate(history, deviation.value)  # [A], CASH first; then through the shield

A policy consists of vintages, networks that were trained on everything before a day. What is decided on a day is
decided by the latest vintage from before it, so that a backtest never uses what was learned from its own future.
Before the first vintage the policy knows nothing, and its portfolio is that of equal weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load, save

from portfolio_sdpo.common.files import write_atomically
from portfolio_sdpo.errors import CheckpointError
from portfolio_sdpo.portfolio.features import REACH, compute_features
from portfolio_sdpo.portfolio.market import Array, Market, all_cash
from portfolio_sdpo.portfolio.shared_network import FeatureTensors, SharedNetwork, mix
from portfolio_sdpo.rl.checkpoint import single_thread
from portfolio_sdpo.settings import Settings

SHIPPED = Path(__file__).with_name("shipped_policy.safetensors")
_RECORD = "portfolio_sdpo"


@dataclass(frozen=True, eq=False)
class Vintage:
    """Networks that were trained on nothing later than a day."""

    until: np.datetime64
    """Last session of the training."""
    members: tuple[SharedNetwork, ...]


@dataclass(frozen=True, eq=False)
class SharedPolicy:
    """Vintages of one small network that is shared by all assets."""

    vintages: tuple[Vintage, ...]
    """By day."""
    card: Mapping[str, Any] = field(default_factory=dict)
    """Where it comes from: data and their hash, years, command, settings, results, limits of use."""

    def vintage_at(self, day: np.datetime64) -> Vintage | None:
        """The latest vintage that was trained before that day."""
        before = [vintage for vintage in self.vintages if vintage.until < day]
        return before[-1] if before else None

    def propose(self, market: Market, rows: NDArray[np.intp], deviation: float = 1.0) -> Array:
        """Shares [K, N] of what is invested at the closes `rows` [K], each by the vintage of its day, from its past.

        They sum to 1, or to 0 where nothing is listed. The network's share of the risk budget is not used: in training
        it stands for the shield's answer to losses in progress, and behind the shield itself it only added trades.
        """
        seen = FeatureTensors.of(compute_features(market, rows))
        listed = market.listed[rows, 1:]
        shares = np.where(listed, 1.0, 0.0) / np.maximum(listed.sum(axis=1, keepdims=True), 1)
        index = np.searchsorted([vintage.until for vintage in self.vintages], market.dates[rows], side="left") - 1
        with single_thread(), torch.no_grad():
            # One close at a time: the last bit of a batch's rows depends on how many there are, and on the processor.
            for place in np.flatnonzero(index >= 0) if deviation > 0.0 else ():
                part = seen.at(torch.as_tensor([place]))
                mixes = [mix(member(part)[0], part.listed, deviation) for member in self.vintages[index[place]].members]
                shares[place] = torch.stack(mixes).mean(0)[0].double().numpy()
        return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-12))

    def allocate(self, history: Market, deviation: float = 1.0) -> Array:
        """The weights [A] at the last close of the history, fully invested: the shield decides how much stays in cash.

        At a deviation of 0 these are equal weights, at 1 the policy decides alone.
        """
        recent = history if len(history) <= REACH else history.between(history.dates[-REACH])
        order = np.array(sorted(range(len(recent.tickers)), key=recent.tickers.__getitem__), dtype=np.intp)
        order = order[recent.listed[:, 1 + order].any(axis=0)]
        weights = all_cash(len(history.assets))
        if not len(order) or not recent.listed[-1, 1 + order].any():
            return weights
        columns = np.concatenate([[0], 1 + order])
        # In one memory layout, whatever that of the history: the last bit of a sum depends on it.
        known = replace(
            recent,
            tickers=tuple(recent.tickers[i] for i in order),
            gross_returns=np.ascontiguousarray(recent.gross_returns[:, columns]),
            listed=np.ascontiguousarray(recent.listed[:, columns]),
        )
        weights[0] = 0.0
        weights[1 + order] = self.propose(known, np.array([len(known) - 1]), deviation)[0]
        return weights

    def save(self, path: Path) -> None:
        """Write the policy, networks and card, as one safetensors file."""
        write_atomically(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        tensors = {
            f"{number}.{member}.{name}": tensor.clone()
            for number, vintage in enumerate(self.vintages)
            for member, network in enumerate(vintage.members)
            for name, tensor in network.state_dict().items()
        }
        record = {
            "vintages": [[str(vintage.until), len(vintage.members)] for vintage in self.vintages],
            "card": dict(self.card),
        }
        return save(tensors, {_RECORD: json.dumps(record)})

    @property
    def sha256(self) -> str:
        """Of what `save` writes."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def load(cls, path: Path) -> SharedPolicy:
        """The policy of a file."""
        try:
            return cls.from_bytes(path.read_bytes())
        except OSError as error:
            raise CheckpointError(f"The policy {path.name} cannot be read ({error.strerror}).") from None

    @classmethod
    def from_bytes(cls, content: bytes) -> SharedPolicy:
        """The policy of a file's content."""
        try:
            length = int.from_bytes(content[:8], "little")
            record = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][_RECORD])
            tensors = load(content)
            vintages = []
            for number, (until, members) in enumerate(record["vintages"]):
                parts = [_select(tensors, f"{number}.{member}.") for member in range(members)]
                vintages.append(Vintage(np.datetime64(until), tuple(_network(part) for part in parts)))
        except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError):
            raise CheckpointError("The policy's file is damaged or is not one of a shared policy.") from None
        return cls(tuple(vintages), record["card"])


def load_shipped_policy() -> SharedPolicy:
    """The policy that comes with the package; its card says on what it was trained and what it achieved."""
    return SharedPolicy.load(SHIPPED)


def join_vintages(policies: Sequence[SharedPolicy], card: Mapping[str, Any]) -> SharedPolicy:
    """One policy with the vintages of several."""
    vintages = sorted((vintage for policy in policies for vintage in policy.vintages), key=lambda each: each.until)
    return SharedPolicy(tuple(vintages), card)


class SharedPolicySettings(Settings):
    """Which policy an agent decides with, instead of training one, and how far it may leave equal weights."""

    kind: Literal["shared"] = "shared"
    policy: str = "shipped"
    """`shipped` for the one that comes with the package, or the path of a file that `SharedPolicy.save` wrote."""
    deviation: Literal["earned"] | Annotated[float, Field(ge=0, le=1)] = "earned"
    """`earned` on the universe's own past (`portfolio.deviation`), or a fixed number from 0, equal weights, to 1."""

    def load_policy(self) -> SharedPolicy:
        """The policy that is named."""
        return load_shipped_policy() if self.policy == "shipped" else SharedPolicy.load(Path(self.policy))


def _select(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _network(state: dict[str, torch.Tensor]) -> SharedNetwork:
    memory = state["encoder.weight_hh_l0"].shape[1] if "encoder.weight_hh_l0" in state else 0
    network = SharedNetwork(state["score.weight"].shape[1], memory)
    network.load_state_dict(state)
    return network.requires_grad_(False)
