"""The settings by which an agent decides with a shared policy instead of training one on its universe alone."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from portfolio_sdpo.portfolio.shared_policy import SharedPolicy, load_shipped_policy
from portfolio_sdpo.settings import Settings


class SharedPolicySettings(Settings):
    """Which policy, and how far it may leave equal weights."""

    kind: Literal["shared"] = "shared"
    policy: str = "shipped"
    """`shipped` for the one that comes with the package, or the path of a file that `SharedPolicy.save` wrote."""
    deviation: Literal["earned"] | Annotated[float, Field(ge=0, le=1)] = "earned"
    """`earned` on the universe's own past (`portfolio.deviation`), or a fixed number from 0, equal weights, to 1."""

    def load_policy(self) -> SharedPolicy:
        """The policy that is named."""
        return load_shipped_policy() if self.policy == "shipped" else SharedPolicy.load(Path(self.policy))


def hash_policy(policy: SharedPolicy) -> str:
    """SHA-256 of the policy's file."""
    return hashlib.sha256(policy.to_bytes()).hexdigest()
