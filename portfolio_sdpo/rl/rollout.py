"""Experience: whole batches of fresh episodes from any gymnasium vector environment.

Every iteration starts from a reset whose seed follows from (run seed, iteration), and draws its actions from a
generator derived in the same way. What is collected is therefore a function of the policy, the seed and the iteration
alone: no hidden state of environment or random numbers has to survive between iterations, and a resumed run continues
exactly.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from portfolio_sdpo.errors import EnvironmentFault, SettingsError
from portfolio_sdpo.nn.networks import ObservationCodec, Policy


@dataclass(frozen=True)
class Rollout:
    """n transitions, flat and in order: episode after episode, and inside an episode step after step.

    The flat order lets episodes have any length; `episode` and `step` say where each transition belongs.
    """

    observation: Tensor
    """[n, D]"""
    action: Tensor
    """[n, ...]"""
    log_prob: Tensor
    """[n] of the action under the policy that took it"""
    signals: dict[str, Tensor]
    """name → [n]; `reward` is always there"""
    next_observation: Tensor
    """[n, D]; at an episode's end the final observation, not the one after the reset"""
    terminated: Tensor
    """[n] bool: the episode ended here, nothing follows"""
    ended: Tensor
    """[n] bool: the environment ended the episode here, be it terminated or truncated; not so where the batch cut it"""
    last: Tensor
    """[n] bool: the last transition of its episode in this batch, for whatever reason (terminated, truncated, cut)"""
    episode: Tensor
    """[n] index of the episode, 0 … E−1"""
    step: Tensor
    """[n] steps since the episode's start"""
    starts: Tensor = field(init=False)
    """[E] index of each episode's first transition"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", (self.step == 0).nonzero().squeeze(-1))

    def __len__(self) -> int:
        return len(self.step)

    @property
    def episodes(self) -> int:
        return len(self.starts)

    @property
    def ends(self) -> Tensor:
        """[E] index of each episode's last transition"""
        return self.last.nonzero().squeeze(-1)

    @cached_property
    def grid(self) -> Grid:
        """The transitions as a table of steps × episodes, for recursions over time"""
        return Grid(self)

    def per_episode(self, values: Tensor) -> Tensor:
        """Sum of [n] values over each episode, [E]."""
        return torch.zeros(self.episodes, dtype=values.dtype).index_add_(0, self.episode, values)

    def returns(self, signal: str, discount: float) -> Tensor:
        """Σ_t γ^t signal_t of each episode, [E]."""
        values = self.signals[signal]
        return self.per_episode(values * discount ** self.step.to(values.dtype))

    @staticmethod
    def join(rollouts: Sequence[Rollout]) -> Rollout:
        """All their episodes in one rollout, in the order given."""
        if len(rollouts) == 1:
            return rollouts[0]
        before = np.cumsum([0, *(rollout.episodes for rollout in rollouts[:-1])]).tolist()
        columns = [item.name for item in fields(Rollout) if item.init and item.name not in ("signals", "episode")]
        return Rollout(
            **{name: torch.cat([getattr(rollout, name) for rollout in rollouts]) for name in columns},
            signals={name: torch.cat([rollout.signals[name] for rollout in rollouts]) for name in rollouts[0].signals},
            episode=torch.cat([rollout.episode + shift for rollout, shift in zip(rollouts, before, strict=True)]),
        )

    def whole(self) -> Rollout:
        """Only the episodes that the environment ended; all of them where it ended none."""
        kept = self.ended[self.ends]
        if kept.all() or not kept.any():
            return self
        chosen = kept[self.episode]
        return replace(
            self,
            **{
                name: getattr(self, name)[chosen]
                for name in ("observation", "action", "log_prob", "next_observation", "terminated", "ended", "last")
            },
            signals={name: values[chosen] for name, values in self.signals.items()},
            episode=(kept.long().cumsum(0) - 1)[self.episode[chosen]],
            step=self.step[chosen],
        )


class Grid:
    """The flat transitions of a rollout laid out as [L, E] (step × episode), for recursions over time.

    >>> # flat  [a0 a1 a2 b0 b1]   →   rows: [a0 b0], [a1 b1], [a2 –]
    """

    def __init__(self, rollout: Rollout) -> None:
        self.length = int(rollout.step.max()) + 1
        self.episodes = rollout.episodes
        self._step = rollout.step
        self._index = rollout.step * self.episodes + rollout.episode

    def lay_out(self, flat: Tensor, fill: float = 0.0) -> Tensor:
        """[n, ...] → [L, E, ...], `fill` where an episode is already over."""
        grid = torch.full((self.length * self.episodes, *flat.shape[1:]), fill, dtype=flat.dtype)
        grid[self._index] = flat
        return grid.view(self.length, self.episodes, *flat.shape[1:])

    def flatten(self, grid: Tensor) -> Tensor:
        """[L, E, ...] → [n, ...], the inverse."""
        return grid.reshape(-1, *grid.shape[2:])[self._index]

    def sum_ahead(self, increments: Tensor, decay: float) -> Tensor:
        """A_t = Σ_k decay^k · increment_{t+k} to the end of the episode, for flat increments [n].

        With increments δ_t = r_t + γ V(s_{t+1}) − V(s_t) and decay γλ this is GAE (Schulman et al. 2016, eq. 16).
        """
        ahead = self.lay_out(increments)
        for t in range(self.length - 2, -1, -1):
            ahead[t] += decay * ahead[t + 1]
        return self.flatten(ahead)

    def sum_before(self, signal: Tensor, discount: float) -> Tensor:
        """c_t = Σ_{k<t} γ^k signal_k, [L, E]; once an episode is over it stays at the episode's total."""
        paid = self.lay_out(signal * discount ** self._step.to(signal.dtype))
        total = paid.cumsum(0)
        return total - paid


class Purpose(IntEnum):
    """What random numbers are drawn for; every purpose has a stream of its own."""

    COLLECT = 0
    UPDATE = 1
    INITIALISE = 2
    PROBE = 3
    """fresh episodes that measure the policy of an iteration"""
    PHASE_ONE = 4
    """fresh episodes on which a feasible start is tried"""


def stream(seed: int, iteration: int, purpose: Purpose, lane: int = 0) -> np.random.SeedSequence:
    """The root of the random numbers for one purpose in one iteration of one run; lane 0 is that of a run without."""
    return np.random.SeedSequence((seed, iteration, int(purpose), *([lane] if lane else [])))


def torch_generator(sequence: np.random.SeedSequence) -> torch.Generator:
    """A torch generator that starts from that root."""
    return torch.Generator().manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> 1))


class Experience(Protocol):
    """Where a trainer's rollouts come from."""

    codec: ObservationCodec
    single_action_space: spaces.Space[Any]
    signals: list[str]
    """what each rollout has, `reward` first"""
    steps: int
    seed: int
    layout: tuple[int, int]
    """how many environments there are and how many of them step together; (0, 0) if all of them do"""

    def collect(self, policy: Policy, iteration: int) -> Rollout:
        """The batch of one iteration."""

    def begin(self, policy: Policy, iteration: int) -> None:
        """Start on a batch with the policy as it is now, in other processes if there are any; drop one begun before."""

    def finish(self) -> Rollout:
        """The batch that was begun."""


class Collector:
    """Runs a policy in a vector environment for `steps` steps of every sub-environment and returns the rollout."""

    def __init__(self, env: VectorEnv[Any, Any, Any], signals: Iterable[str], steps: int, seed: int) -> None:
        if steps < 1:
            raise SettingsError(f"steps: each environment needs at least one step per iteration (got {steps}).")
        self.env = env
        self.codec = ObservationCodec(env.single_observation_space)
        self.single_action_space = env.single_action_space
        self.costs = [name for name in dict.fromkeys(signals) if name != "reward"]
        self.signals = ["reward", *self.costs]
        self.steps = steps
        self.seed = seed
        self.layout = (0, 0)
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._categories = np.array(self.codec.categories, dtype=np.float32)
        self._begun: tuple[Policy, int] | None = None

    def begin(self, policy: Policy, iteration: int) -> None:
        """Note what to collect: there is no other process that could do it meanwhile (see `rl.workers`)."""
        self._begun = copy.deepcopy(policy), iteration

    def finish(self) -> Rollout:
        """Collect what was begun."""
        if self._begun is None:
            raise RuntimeError("finish() comes after begin()")
        begun, self._begun = self._begun, None
        return self.collect(*begun)

    def collect(self, policy: Policy, iteration: int, lane: int = 0) -> Rollout:
        """One batch of `steps` × num_envs transitions, less the ones in which gymnasium only resets.

        lane: which of several collectors this is that fill an iteration together.
        """
        count = self.env.num_envs
        environment_seed, action_seed = stream(self.seed, iteration, Purpose.COLLECT, lane).spawn(2)
        generator = torch_generator(action_seed)
        raw, _ = self.env.reset(seed=int(environment_seed.generate_state(1)[0] >> 1))
        observation = self._encode(raw)
        columns: dict[str, list[Tensor]] = {name: [] for name in ("observation", "action", "log_prob", "next", "end")}
        signals: dict[str, list[np.ndarray]] = {name: [] for name in self.signals}
        terminations, live = [], []
        resetting = np.zeros(count, dtype=bool)
        for _ in range(self.steps):
            action, log_prob = policy.act(observation, generator)
            executed = self._in_space(policy.head.to_executable(action).numpy())
            raw, reward, terminated, truncated, info = self.env.step(executed)
            done = np.logical_or(terminated, truncated)
            following = self._encode(raw)
            columns["observation"].append(observation)
            columns["action"].append(action)
            columns["log_prob"].append(log_prob)
            columns["next"].append(self._final(following, done, info))
            signals["reward"].append(np.asarray(reward, dtype=np.float64))
            for name in self.costs:
                signals[name].append(self._cost(name, info, done, resetting))
            columns["end"].append(torch.from_numpy(done.copy()))
            terminations.append(torch.from_numpy(np.array(terminated, dtype=bool)))
            live.append(torch.from_numpy(~resetting))
            # In gymnasium's NEXT_STEP mode the step after an episode's end only resets: its transition is dropped.
            resetting = done & (self._mode == AutoresetMode.NEXT_STEP)
            observation = following
            if self._mode == AutoresetMode.DISABLED and done.any():
                raw, _ = self.env.reset(options={"reset_mask": done})
                observation = self._encode(raw)
        return self._assemble(columns, signals, torch.stack(terminations), torch.stack(live))

    def _assemble(
        self,
        columns: dict[str, list[Tensor]],
        signals: dict[str, list[np.ndarray]],
        terminated: Tensor,
        live: Tensor,
    ) -> Rollout:
        """Stacks of [T, B, ...] to the flat, episode-by-episode order."""
        # [B, T]: one sub-environment after the other, each in time order.
        keep = live.T.reshape(-1)

        def flat(stacked: Tensor) -> Tensor:
            return stacked.transpose(0, 1).reshape(-1, *stacked.shape[2:])[keep]

        end = torch.stack(columns["end"])
        last = end.clone()
        last[-1] = True
        last = flat(last)
        first = torch.cat([torch.ones(1, dtype=torch.bool), last[:-1]])
        episode = first.long().cumsum(0) - 1
        index = torch.arange(len(first))
        step = index - index[first][episode]
        tensors = {name: flat(torch.from_numpy(np.stack(rows))).float() for name, rows in signals.items()}
        for name, values in tensors.items():
            if not values.isfinite().all():
                raise EnvironmentFault(
                    f"the environment returned a {name} that is not finite: check its step() for a division by zero."
                )
        return Rollout(
            observation=flat(torch.stack(columns["observation"])),
            action=flat(torch.stack(columns["action"])),
            log_prob=flat(torch.stack(columns["log_prob"])),
            signals=tensors,
            next_observation=flat(torch.stack(columns["next"])),
            terminated=flat(terminated),
            ended=flat(end),
            last=last,
            episode=episode,
            step=step,
        )

    def _in_space(self, action: np.ndarray) -> np.ndarray:
        """What the policy drew, as the environment counts it: from the space's start, and within its bounds."""
        space = self.env.single_action_space
        if isinstance(space, spaces.Discrete):
            return np.asarray(action + space.start)
        # Which np.clip would do as well, and five times as slowly on a few numbers; so with the checks of `_encode`.
        return np.minimum(np.maximum(action, space.low), space.high) if isinstance(space, spaces.Box) else action

    def _encode(self, observation: Any, count: int | None = None) -> Tensor:
        encoded = self.codec.encode(observation, count or self.env.num_envs)
        if not np.isfinite(encoded.numpy()).all():
            raise EnvironmentFault(
                "the environment returned an observation that is not finite: check what its reset() and step() return."
            )
        discrete = encoded.numpy()[:, : len(self._categories)]
        if discrete.size and not ((discrete >= 0) & (discrete < self._categories)).all():
            raise EnvironmentFault(
                "the environment returned a discrete observation outside its observation space: correct the space or "
                "what its reset() and step() return."
            )
        return encoded

    def _final(self, following: Tensor, done: np.ndarray, info: dict[str, Any]) -> Tensor:
        """The observations that end this step; where an episode is over, the last one before the automatic reset."""
        if not done.any() or self._mode != AutoresetMode.SAME_STEP:
            return following
        final = info.get("final_obs")
        if final is None:
            raise EnvironmentFault("the environment resets in the same step but its info lacks 'final_obs'.")
        if isinstance(final, np.ndarray) and final.dtype == object:
            # gymnasium's SyncVectorEnv keeps one observation per finished sub-environment, None elsewhere.
            following = following.clone()
            for index in np.flatnonzero(done):
                following[index] = self._encode(final[index], 1)[0]
            return following
        return torch.where(torch.from_numpy(done)[:, None], self._encode(final), following)

    def _cost(self, name: str, info: dict[str, Any], done: np.ndarray, resetting: np.ndarray) -> np.ndarray:
        """A named signal of every sub-environment, [B]."""
        values = np.zeros(len(done))
        given = np.zeros(len(done), dtype=bool)
        sources = [(info, ~done)] if self._mode == AutoresetMode.SAME_STEP else [(info, np.ones_like(done))]
        if self._mode == AutoresetMode.SAME_STEP and done.any():
            sources.append((cast(dict[str, Any], info.get("final_info", {})), done))
        for source, where in sources:
            if name in source:
                present = where & np.asarray(source.get(f"_{name}", True))
                try:
                    values = np.where(present, np.asarray(source[name], dtype=np.float64), values)
                except (TypeError, ValueError):
                    raise EnvironmentFault(
                        f"the environment's info has a signal '{name}' that is not a number: return one float per step."
                    ) from None
                given |= present
        if not (given | resetting).all():
            raise EnvironmentFault(
                f"the environment's info lacks the signal '{name}' that a constraint bounds: "
                "return it from every step(), or correct the constraint's signal."
            )
        return values
