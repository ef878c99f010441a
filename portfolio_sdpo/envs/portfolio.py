"""Trading as a gymnasium environment, one episode at a time or many at once, on arrays.

At close t the agent sees the gross returns up to and including t and gives weights on the simplex over cash and stocks.
They are traded from what has drifted, at close t+1 or, with `execution="same-close"` (the paper's), at close t itself;
the fee is paid on what is traded. A step lasts from close t to close t+1: it pays the fee of the trade at close t and
earns the gross returns of t+1, so that at the next close the first step is one of what is held at the start, and what
the last step asks for is not traded any more.

Observation, single precision [3A] (`observation_slices`): the log gross returns of today's close (cash first; 0 where
there are none), which assets are listed (0 or 1), what is held then: the drifted weights, at the next close after the
trade of the action before. Action, [A]: weights; weight on an
unlisted stock and beyond a cap goes to cash (`limits`), and weights off the simplex are an error. Signals of a step:

    reward      ln(wealth after / wealth before), net of the fee; its sum is the log growth of the episode
    turnover    stocks bought and sold over wealth (`accounting.turnover`); its sum is the turnover of the episode
    drawdown    by how much the largest drawdown so far grew; its sum is the maximum drawdown of the episode

`info` also carries `wealth` (1 at the start) and `weights`, what the session began with, after the trade. An episode
starts all in cash, or with `options={"held": weights}`, and is truncated after L decisions, because the market
continues. Only ruin terminates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.accounting import Execution, check_execution, check_fee, hold
from portfolio_sdpo.portfolio.limits import Limits, Simplex, check_weights
from portfolio_sdpo.portfolio.market import Array, Day, Market, Mask
from portfolio_sdpo.portfolio.scenarios import Paths, Replay, Rows, ScenarioKind, Scenarios, scenarios_of

if TYPE_CHECKING:
    import pandas as pd

Observation = NDArray[np.float32]

RUIN = 1e-6
"""Share of the initial wealth at which an episode ends; a step's growth is floored here to keep the reward finite."""

MAX_LOG = 20.0
"""Log gross returns in an observation are clipped to ± this."""

NO_LIMITS = Limits()


class ObservationSlices(NamedTuple):
    """Where the parts of an observation are."""

    gross_returns: slice
    listed: slice
    held: slice


def observation_slices(assets: int) -> ObservationSlices:
    """The parts of an observation [..., 3A] of A assets, cash included."""
    return ObservationSlices(slice(0, assets), slice(assets, 2 * assets), slice(2 * assets, 3 * assets))


def observation_space(assets: int) -> spaces.Box:
    """The space of observations [3A]."""
    high = np.repeat(np.array([MAX_LOG, 1.0, 1.0], dtype=np.float32), assets)
    low = np.repeat(np.array([-MAX_LOG, 0.0, 0.0], dtype=np.float32), assets)
    return spaces.Box(low, high, dtype=np.float32)


class Position(NamedTuple):
    """What is held at a close, and of the trade there, if it is done already, what it left and how much it traded."""

    held: Array
    """[A] or [B, A]"""
    kept: Any
    """Share of wealth, a number or [B]."""
    traded: Any


class PortfolioDynamics:
    """The dynamics that both environments share: scenario tables, and what a decision does ([A] or [B, A] arrays)."""

    def __init__(self, scenarios: Scenarios, fee: float, limits: Limits, execution: Execution) -> None:
        if limits.groups:
            raise SettingsError(
                "limits: groups are named by tickers, which scenarios do not have; give max_weight and max_turnover."
            )
        self.scenarios, self.fee, self.limits = scenarios, check_fee(fee), limits
        self.late = check_execution(execution) == "next-close"
        self.assets = int(scenarios.gross_returns.shape[1])
        self._gross_returns, self._listed = scenarios.gross_returns, scenarios.listed
        # [R] whether an asset is not listed, and whether one is no longer: most rows need no mask.
        self._lacks: Mask = np.any(~scenarios.listed, axis=1)
        self._leaves = np.zeros(len(self._lacks), dtype=np.bool_)
        self._leaves[1:] = np.any(scenarios.listed[:-1] & ~scenarios.listed[1:], axis=1)
        with np.errstate(divide="ignore"):
            logs = np.log(scenarios.gross_returns).clip(-MAX_LOG, MAX_LOG)
        self._seen = np.concatenate([logs, scenarios.listed], axis=1, dtype=np.float32)

    def settle(self, action: Any, position: Position, now: Any, following: Any) -> tuple[Array, Array, Array, Position]:
        """From the close of row `now` to that of `following`: net growth, turnover, weights, and the position then."""
        action = check_weights(action, position.held.shape)
        weights, kept, traded = position if self.late else self._trade(action, position.held, now)
        still = self._listed.take(following, axis=0) if np.count_nonzero(self._leaves[following]) else None
        growth, drifted = hold(weights, self._gross_returns.take(following, axis=0), still)
        after = Position(*self._trade(action, drifted, following)) if self.late else self.rest(drifted)
        return kept * growth, traded, weights, after

    def _trade(self, target: Array, held: Array, row: Any) -> tuple[Array, Array, Array]:
        listed = self._listed.take(row, axis=0) if np.count_nonzero(self._lacks[row]) else None
        return self.limits.execute(target, held, listed, self.fee)

    def rest(self, held: Array) -> Position:
        """A position in which nothing was traded."""
        return Position(held, np.ones(held.shape[:-1]), np.zeros(held.shape[:-1]))

    def observe(self, row: Any, held: Array) -> Observation:
        """[3A] or [B, 3A]"""
        seen = np.empty((*held.shape[:-1], 3 * self.assets), dtype=np.float32)
        seen[..., : 2 * self.assets] = self._seen.take(row, axis=0)
        seen[..., 2 * self.assets :] = held
        return seen

    def start(self, held: Any, shape: tuple[int, ...], row: Any) -> Array:
        """[..., A] weights that episodes start with, all cash if None; what is not listed at `row` is cash."""
        shape = (*shape, self.assets)
        if held is None:
            cash = np.zeros(shape)
            cash[..., 0] = 1.0
            return cash
        given = np.asarray(held, dtype=np.float64)
        weights = check_weights(np.broadcast_to(given, shape) if given.shape == shape[-1:] else given, shape)
        return NO_LIMITS.apply(weights, weights, self._listed[row])

    def choose(self, path: Any, count: int, rng: np.random.Generator) -> Rows:
        """[count] numbers of paths: those that the user gave, or a draw."""
        if path is None:
            return self.scenarios.choose(rng, count)
        numbers, known = np.asarray(path), self.scenarios.paths
        whole = np.issubdtype(numbers.dtype, np.integer) and numbers.size in (1, count)
        if not whole or numbers.min() < 0 or numbers.max() >= known:
            there = f"from 0 to {known - 1}, one for all episodes or one each" if known else "absent: paths are drawn"
            raise SettingsError(f"options.path: must be {there} (got {path!r}).")
        return np.broadcast_to(numbers.reshape(-1), (count,)).astype(np.int64)


class PortfolioEnv(gymnasium.Env[Any, Any]):
    """One episode at a time; reset's options choose its `path` by number and the weights `held` at its start."""

    metadata = {"render_modes": []}  # noqa: RUF012 — gymnasium's own convention

    def __init__(
        self,
        scenarios: Scenarios,
        fee: float = 0.0,
        limits: Limits = NO_LIMITS,
        execution: Execution = "next-close",
    ) -> None:
        self._dynamics = PortfolioDynamics(scenarios, fee, limits, execution)
        self.observation_space = observation_space(self._dynamics.assets)
        self.action_space = Simplex((self._dynamics.assets,))
        self._rows: list[int] = []
        self._position = self._dynamics.rest(np.zeros(0))
        self._time, self._wealth, self._peak, self._worst = 0, 1.0, 1.0, 0.0
        self._over = True

    @classmethod
    def from_paths(
        cls, paths: Paths, fee: float = 0.0, limits: Limits = NO_LIMITS, execution: Execution = "next-close"
    ) -> PortfolioEnv:
        """Episodes that replay the given paths, each as likely as any other."""
        return cls(Replay.of_paths(paths), fee, limits, execution)

    @property
    def horizon(self) -> int:
        """Decisions in an episode."""
        return self._dynamics.scenarios.length

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        path, held = _options(options)
        chosen = self._dynamics.choose(path, 1, self.np_random)
        self._rows = self._dynamics.scenarios.draw(self.np_random, chosen)[0].tolist()
        self._position = self._dynamics.rest(self._dynamics.start(held, (), self._rows[0]))
        self._time, self._wealth, self._peak, self._worst = 0, 1.0, 1.0, 0.0
        self._over = False
        return self._dynamics.observe(self._rows[0], self._position.held), {"path": int(chosen[0])}

    def step(self, action: Array) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() before the next step().")
        now, following = self._rows[self._time : self._time + 2]
        growth, traded, weights, self._position = self._dynamics.settle(action, self._position, now, following)
        net = max(float(growth), RUIN)
        self._time += 1
        self._wealth *= net
        self._peak = max(self._peak, self._wealth)
        before, self._worst = self._worst, max(self._worst, 1.0 - self._wealth / self._peak)
        info = {
            "turnover": float(traded),
            "drawdown": self._worst - before,
            "wealth": self._wealth,
            "weights": weights,
        }
        ruined = self._wealth <= RUIN
        ended = self._time >= self.horizon
        self._over = ruined or ended
        seen = self._dynamics.observe(following, self._position.held)
        return seen, float(np.log(net)), ruined, ended and not ruined, info


class PortfolioVectorEnv(VectorEnv[Any, Any, NDArray[Any]]):
    """`num_envs` episodes side by side, each as `PortfolioEnv` would run it.

    Reset spreads the paths evenly over the episodes, or takes `options={"path": [B] numbers, "held": [A] or [B, A]}`;
    the property `path` says which one each episode replays. An episode that is over starts again in the same step, all
    in cash; the `info` of that step carries `final_obs`, batched as an observation is, and the signals in `final_info`.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        scenarios: Scenarios,
        num_envs: int,
        fee: float = 0.0,
        limits: Limits = NO_LIMITS,
        seed: int | None = None,
        execution: Execution = "next-close",
    ) -> None:
        if num_envs < 1:
            raise SettingsError(f"PortfolioVectorEnv.num_envs: needs at least one episode (got {num_envs}).")
        self.num_envs = num_envs
        self._dynamics = PortfolioDynamics(scenarios, fee, limits, execution)
        self.single_observation_space = observation_space(self._dynamics.assets)
        self.single_action_space = Simplex((self._dynamics.assets,))
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._np_random, self._np_random_seed = seeding.np_random(seed)
        self._path = np.full(num_envs, -1)
        # [B · (L+1)] rows of every episode, one episode after the other, and [B] where each of them stands now.
        self._rows = np.zeros(num_envs * (self.horizon + 1), dtype=np.int64)
        self._first = np.arange(num_envs) * (self.horizon + 1)
        self._place = self._first
        self._position = self._dynamics.rest(self._dynamics.start(None, (num_envs,), None))
        self._wealth, self._peak, self._worst = np.ones(num_envs), np.ones(num_envs), np.zeros(num_envs)
        self._started = False

    @classmethod
    def from_paths(
        cls,
        paths: Paths,
        num_envs: int,
        fee: float = 0.0,
        limits: Limits = NO_LIMITS,
        seed: int | None = None,
        execution: Execution = "next-close",
    ) -> PortfolioVectorEnv:
        """Episodes that replay the given paths, each path by as many episodes as any other (or one more)."""
        return cls(Replay.of_paths(paths), num_envs, fee, limits, seed, execution)

    @property
    def horizon(self) -> int:
        """Decisions in an episode."""
        return self._dynamics.scenarios.length

    @property
    def path(self) -> Rows:
        """[B] number of the path that each running episode replays; −1 where paths are drawn at random."""
        return self._path.copy()

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed if not isinstance(seed, list) else seed[0], options=options)
        path, held = _options(options)
        self._restart(np.ones(self.num_envs, dtype=np.bool_), path, held)
        self._started = True
        return self._dynamics.observe(self._rows[self._place], self._position.held), {"path": self.path}

    def step(self, actions: Array) -> tuple[Observation, Array, Mask, Mask, dict[str, Any]]:
        if not self._started:
            raise gymnasium.error.ResetNeeded("no episode has started: call reset() before the first step().")
        now, following = self._rows[self._place], self._rows[self._place + 1]
        growth, traded, weights, self._position = self._dynamics.settle(actions, self._position, now, following)
        net = np.maximum(growth, RUIN)
        self._place = self._place + 1
        self._wealth = self._wealth * net
        self._peak = np.maximum(self._peak, self._wealth)
        before, self._worst = self._worst, np.maximum(self._worst, 1.0 - self._wealth / self._peak)
        signals = {
            "turnover": traded,
            "drawdown": self._worst - before,
            "wealth": self._wealth,
            "weights": weights,
        }
        reward = np.log(net)
        ruined = self._wealth <= RUIN
        ended = self._place - self._first >= self.horizon
        truncated = ended & ~ruined
        over = ruined | ended
        seen = self._dynamics.observe(following, self._position.held)
        if not np.count_nonzero(over):
            return seen, reward, ruined, truncated, signals
        self._restart(over)
        final = {"final_obs": seen, "final_info": signals, "path": self.path}
        seen = self._dynamics.observe(self._rows[self._place], self._position.held)
        return seen, reward, ruined, truncated, {**signals, **final}

    def _restart(self, over: Mask, path: Any = None, held: Any = None) -> None:
        """New episodes where `over` [B]."""
        count = int(over.sum())
        chosen = self._dynamics.choose(path, count, self.np_random)
        rows = self._dynamics.scenarios.draw(self.np_random, chosen)
        start = self._dynamics.start(held, (count,), rows[:, 0])
        self._rows.reshape(self.num_envs, -1)[over] = rows
        self._path[over] = chosen
        # New arrays, because the info of the last step still refers to the old ones.
        self._place = np.where(over, self._first, self._place)
        self._position = Position(
            np.where(over[:, None], 0.0, self._position.held),
            np.where(over, 1.0, self._position.kept),
            np.where(over, 0.0, self._position.traded),
        )
        self._position.held[over] = start
        self._wealth, self._peak = np.where(over, 1.0, self._wealth), np.where(over, 1.0, self._peak)
        self._worst = np.where(over, 0.0, self._worst)


def make_portfolio_env(
    prices: pd.DataFrame | Market,
    fee_bps: float = 0.0,
    cash_rate: float | pd.Series = 0.0,
    window: int | None = 15,
    start: Day | None = None,
    end: Day | None = None,
    scenarios: ScenarioKind = "window",
    limits: Limits = NO_LIMITS,
    block: float | None = None,
    execution: Execution = "next-close",
) -> PortfolioEnv:
    """One episode at a time, for `gymnasium.make`.

    prices: wide frame, dates × tickers, NaN = no price; or a `Market`, which has its own cash rate
    fee_bps: fee on what is bought and sold, in basis points (10 = 0.1 %)
    cash_rate: annual, simple, in decimals; a series is never read ahead
    window: decisions in an episode; None = from start to end in one
    start, end: sessions that episodes are made of, both included; None = as far as the prices go
    scenarios: `window` replays stretches of those sessions from a random first day, `bootstrap` resamples them
    block: mean block length of the bootstrap; None = chosen from the data
    execution: `next-close`, or `same-close` as in the paper
    """
    market = _market(prices, cash_rate)
    fee = check_fee(fee_bps, "fee_bps", 1e4)
    return PortfolioEnv(scenarios_of(market, scenarios, window, start, end, block), fee, limits, execution)


def make_portfolio_vector_env(
    prices: pd.DataFrame | Market,
    num_envs: int = 1,
    fee_bps: float = 0.0,
    cash_rate: float | pd.Series = 0.0,
    window: int | None = 15,
    start: Day | None = None,
    end: Day | None = None,
    scenarios: ScenarioKind = "window",
    limits: Limits = NO_LIMITS,
    block: float | None = None,
    execution: Execution = "next-close",
) -> PortfolioVectorEnv:
    """`num_envs` episodes at once, for `gymnasium.make_vec`; arguments as in `make_portfolio_env`."""
    market = _market(prices, cash_rate)
    fee = check_fee(fee_bps, "fee_bps", 1e4)
    episodes = scenarios_of(market, scenarios, window, start, end, block)
    return PortfolioVectorEnv(episodes, num_envs, fee, limits, execution=execution)


def _market(prices: pd.DataFrame | Market, cash_rate: float | pd.Series) -> Market:
    if not isinstance(prices, Market):
        return Market.from_prices(prices, cash_rate)
    if not isinstance(cash_rate, int | float) or cash_rate != 0.0:
        raise SettingsError("cash_rate: a Market has its own; give it to Market.from_prices.")
    return prices


def _options(options: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """`path` and `held` of reset's options."""
    unknown = set(options or {}) - {"path", "held"}
    if unknown:
        raise SettingsError(f"options: only path and held are known (got {', '.join(sorted(map(str, unknown)))}).")
    return (options or {}).get("path"), (options or {}).get("held")
