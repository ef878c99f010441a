"""`SafeAllocator`: the learning agent with an estimator's manners, from a frame of prices to weights for today.

It adds nothing to what `portfolio-sdpo train` learns and `serve` serves: the same settings, seed and prices give the
same weights to the last bit. What it has learned is kept as the bytes of the agent's files (`store`): a copy, a pickle
and a saved folder are the same policy, and `predict` leaves it as it is.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from pydantic_core import to_jsonable_python

from portfolio_sdpo.common.files import CONFIG
from portfolio_sdpo.errors import DataQualityError, NotFittedError, SettingsError, did_you_mean
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.allocator_parameters import check_parameters, find_limits, read_parameters
from portfolio_sdpo.portfolio.groups import read_groups
from portfolio_sdpo.portfolio.limits import GroupLimit, read_held
from portfolio_sdpo.portfolio.market import Array, Market, all_cash, load_latest_frame
from portfolio_sdpo.portfolio.presets import NO_AGENT, Plan, plan
from portfolio_sdpo.portfolio.shared_policy_agent import build_agent
from portfolio_sdpo.portfolio.shield import shield_within
from portfolio_sdpo.portfolio.store import FOLDERS, agent_from_parts, describe, read_parts, to_parts
from portfolio_sdpo.prices.frame_checks import check_prices


class SafeAllocator:
    """A long-only allocation policy whose CVaR limit holds while it learns and when it trades.

    SDPO maximises growth net of fees subject to CVaR_α(return over `horizon` sessions) ≥ `cvar`; the shield scales the
    weights towards cash so that it holds. The default policy comes with the package, trained on decades of industries,
    and `fit` measures how far it may leave equal weights on these prices; `preset="lstm"` trains on them alone.

    Parameters
    ----------
    cvar : float, default -0.05
        Lowest CVaR allowed; a loss is negative. The default: the worst 5 % of 15-session periods lose 5 % on average.
    alpha : float, default 0.05
        Tail fraction of the CVaR, between 0 and 1.
    horizon : int, default 15
        Sessions of the periods that the limit is about.
    fee_bps : float, default 5.0
        Fee on what is traded that training reckons with, in hundredths of a percent.
    max_weight : float, optional
        Largest weight of a stock; what is above it is held in cash. By default there is no cap.
    max_turnover : float, optional
        Largest turnover of one decision, where switching the whole account is 2: what is beyond it is traded at later
        decisions. What a cap or the shield sells comes on top.
    groups : path or DataFrame, optional
        Largest weights of groups of stocks: a CSV file or a frame with the columns `ticker`, `group` and `max_weight`.
    cash : float or "tbill", default 0.0
        What cash earns: an annual rate (0.02 = 2 %), or the bundled 13-week Treasury bill.
    execution : str, default "next-close"
        When its weights are traded, which training reckons with: at the next close, or with `"same-close"` at the very
        close that they are decided at, as the paper assumes.
    preset : str, default "default"
        What all else is taken from: `"default"`, `"lstm"`, `"lstm-same-close"`, `"paper-stocks"`.
    algorithm : str, default "sdpo"
        The agent of the preset that learns: `"sdpo"`, or `"ppo"`, which knows no limit.
    settings : mapping, optional
        Fields of `AgentSettings` that replace those of the preset, such as `{"every": 21}`.
    shield : bool, default True
        Whether weights pass the shield. A backtest shows the policy without the shield and, if this is True, with it.
    retrain : bool, default True
        Whether the policy keeps learning: `predict` at a later close than that of the fit, and every further decision
        of a backtest, then use what has become known. False freezes the policy.
    seed : int, default 0
        Seed of networks and scenarios; the same seed gives the same weights to the last bit.

    Attributes
    ----------
    weights_ : Series of shape (1 + n_tickers,)
        What to hold from the last close of the fit on, starting from cash.
    as_of_ : Timestamp
        The last close that it knows.
    trace_ : DataFrame
        One row per update: `date`, `iteration`, `objective`, `risk`, `bound`, `slack`, `regime`.
    feature_names_in_ : ndarray of shape (n_tickers,)
        The tickers.
    n_features_in_ : int
        How many tickers there are.
    agent_ : Agent
        A copy of the trained agent.

    See Also
    --------
    portfolio_sdpo.backtest : walk-forward backtests, in which a policy starts untrained and learns as time goes by.
    portfolio_sdpo.load_prices : prices from files and snapshots.

    Notes
    -----
    `fit` takes seconds, with `preset="lstm"` minutes. `sklearn.base.clone` works, without scikit-learn being required.

    Examples
    --------
    >>> from portfolio_sdpo import SafeAllocator, load_prices
    >>> prices = load_prices("sample").loc[:"2018"]
    >>> policy = SafeAllocator(cvar=-0.05, max_weight=0.3)
    >>> policy.fit(prices).predict(prices).index.tolist()
    ['CASH', 'AAPL', 'CSCO', 'DOW', 'GE', 'GS', 'JNJ', 'JPM', 'MMM', 'MSFT']
    >>> bool(policy.predict(prices, held={"MSFT": 0.5}).drop("CASH").max() <= 0.3)
    True
    """

    def __init__(
        self,
        *,
        cvar: float = -0.05,
        alpha: float = 0.05,
        horizon: int = 15,
        fee_bps: float = 5.0,
        max_weight: float | None = None,
        max_turnover: float | None = None,
        groups: Any = None,
        cash: Any = 0.0,
        execution: str = "next-close",
        preset: str = "default",
        algorithm: str = "sdpo",
        settings: Mapping[str, Any] | None = None,
        shield: bool = True,
        retrain: bool = True,
        seed: int = 0,
    ) -> None:
        self.cvar = cvar  # as it was given, like all others: scikit-learn's clone relies on that
        self.alpha = alpha
        self.horizon = horizon
        self.fee_bps = fee_bps
        self.max_weight = max_weight
        self.max_turnover = max_turnover
        self.groups = groups
        self.cash = cash
        self.execution = execution
        self.preset = preset
        self.algorithm = algorithm
        self.settings = settings
        self.shield = shield
        self.retrain = retrain
        self.seed = seed
        self._plan()

    def fit(self, prices: pd.DataFrame, y: None = None) -> Self:
        """Train a new policy on everything up to the last close of the prices.

        Parameters
        ----------
        prices : DataFrame of shape (n_sessions, n_tickers)
            Adjusted closes, dates as index; NaN where a ticker has no price.
        y : None
            Ignored; there for pipelines.

        Returns
        -------
        SafeAllocator
            Itself.
        """
        market, data = load_latest_frame(check_prices(prices, allow_empty=True), self._plan().cash)
        agent = self._make(self._settings(), self.seed, self.algorithm)
        agent.decide(market, all_cash(len(market.assets)))
        self._remember(agent, market, data)
        return self

    def partial_fit(self, prices: pd.DataFrame, y: None = None) -> Self:
        """Train the fitted policy further on prices that reach beyond its last close, or `fit` it if it is new.

        The parameters are those of `fit`; how long it trains is the setting `further`.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(prices)
        market, data = self._market(prices)
        agent = self._load_agent()
        agent.decide(market, all_cash(len(market.assets)))
        self._remember(agent, market, data)
        return self

    def predict(self, prices: pd.DataFrame, held: Mapping[str, float] | pd.Series | None = None) -> pd.Series:
        """Return what to hold from the last close of the prices on: the weights that `portfolio-sdpo serve` serves.

        The policy itself stays as it is: where it has to train on newer prices first (see `retrain`), a copy does.

        Parameters
        ----------
        prices : DataFrame of shape (n_sessions, n_tickers)
            Adjusted closes of the fitted tickers, in any order, up to a close not before that of the fit.
        held : mapping or Series, optional
            What is held at that close, by ticker, in shares of wealth; what remains is `CASH`. By default all is cash,
            and `max_turnover` does not count.

        Returns
        -------
        Series of shape (1 + n_tickers,)
            Weights over CASH and the tickers in the order of the fit, sum 1; its name is the day of the close, and
            `attrs["findings"]` a tuple of the shield's sentences about a short history or a suspicious last move.
        """
        market, _ = self._market(prices)
        agent = self._load_agent(frozen=not self.retrain)
        now = read_held(held, market.assets)
        weights = agent.decide(market, now)
        if not self.shield:
            if held is not None:
                weights = agent.settings.limits.apply(weights, now, market.listed[-1], assets=market.assets)
            return _named(market.assets, weights, market.dates[-1])
        checked = shield_within(
            weights,
            market,
            agent.settings.limit,
            agent.settings.limits,
            held=None if held is None else now,
            form=agent.settings.shield_form,
        )
        return _named(market.assets, checked.weights, market.dates[-1], checked.findings)

    def strategy(self, name: str) -> Agent:
        """Return a strategy for a backtest, with a name.

        A policy that keeps learning starts untrained there, whatever it was fitted to, so that no decision knows a
        later price. A frozen one (`retrain=False`) decides as it was fitted; if it was not, it trains once, at the
        first decision.
        """
        if self.__sklearn_is_fitted__() and not self.retrain:
            return self._load_agent(frozen=True, name=name)
        return self._make(self._settings(), self.seed, name, frozen=not self.retrain)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the fitted policy to a new folder and return its path.

        It has the files of `portfolio-sdpo train` (safetensors, JSON and Parquet, no pickle), so that
        `portfolio-sdpo models add` takes it, with its caps and its limit on turnover.
        """
        self._check_fitted()
        if find_limits(self) != self._limits:  # those of an older folder are not in its settings
            raise SettingsError(
                "max_weight, max_turnover, groups: they were changed after the fit, so today's weights are not those "
                "of this policy; fit it again to save it."
            )
        FOLDERS.write(Path(folder), self._parts)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Return the policy in a folder that `save` or `portfolio-sdpo train` wrote."""
        place = Path(folder)
        parts = read_parts(place)
        config = FOLDERS.parse_json(parts[CONFIG], place, CONFIG)
        try:
            given = config.get("allocator", {})
            policy = cls(**(given if "execution" in given else read_parameters(config)))
        except (KeyError, TypeError, ValueError) as error:
            raise FOLDERS.make_damage_error(place, CONFIG, error) from None
        policy._set_fitted(parts, config, agent_from_parts(parts, place))
        return policy

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, as scikit-learn's estimators do."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name.

        `max_weight`, `max_turnover`, `groups`, `cash`, `shield` and `retrain` count at once, others by `fit`.
        """
        unknown = next((name for name in params if name not in PARAMETERS), None)
        if unknown is not None:
            raise SettingsError(
                f"{unknown}: SafeAllocator has no such parameter{did_you_mean(unknown, PARAMETERS)}; it has "
                f"{', '.join(PARAMETERS)}."
            )
        type(self)(**{**self.get_params(), **params})  # refused as a whole, before anything is changed
        for name, value in params.items():
            setattr(self, name, value)
        return self

    @property
    def agent_(self) -> Agent:
        """A copy of the trained agent."""
        return self._load_agent()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "as_of_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def __repr__(self) -> str:
        given = {name: repr(getattr(self, name)) for name in PARAMETERS}
        changed = [f"{name}={text}" for name, text in given.items() if text != repr(PARAMETERS[name])]
        return f"{type(self).__name__}({', '.join(changed)})"

    def find_groups(self) -> tuple[GroupLimit, ...]:
        """The limits of groups; a fitted policy keeps those that it was fitted with, whatever becomes of the file."""
        fitted = getattr(self, "_groups", None)
        return fitted[1] if fitted is not None and fitted[0] is self.groups else read_groups(self.groups)

    def _plan(self) -> Plan:
        """The settings of agent, fee and cash; an error names the parameter that is wrong."""
        check_parameters(self)
        config = dict(self.settings or {})
        for field, parameter in {
            "limit": "cvar, alpha and horizon",
            "fee": "fee_bps",
            "execution": "the parameter of that name",
            "limits": "max_weight, max_turnover and groups",
        }.items():
            if field in config:
                raise SettingsError(f"settings: give {parameter} instead of {field}, which is not taken from there.")
        try:
            return plan(
                self.preset,
                [self.algorithm],
                config=config,
                alpha=float(self.alpha),
                bound=float(self.cvar),
                horizon=int(self.horizon),
                fee_bps=float(self.fee_bps),
                cash=self.cash,
                execution=self.execution,
                limits=find_limits(self).model_dump(),
            )
        except SettingsError as error:
            sentence = str(error).replace("AgentSettings", "settings").replace(f", {NO_AGENT}.", ".")
            raise SettingsError(sentence.replace("algo:", "algorithm:")) from None

    def _settings(self) -> AgentSettings:
        return self._plan().agents[self.algorithm]

    def _make(self, settings: AgentSettings, seed: int, name: str, frozen: bool = False) -> Agent:
        changes: dict[str, Any] = {"limits": find_limits(self), **({"further": 0} if frozen else {})}
        return build_agent(settings.model_copy(update=changes), int(seed), name)

    def _load_agent(self, frozen: bool = False, name: str | None = None) -> Agent:
        """The fitted agent, built from its files, so that the fitted one never changes."""
        self._check_fitted()
        loaded = agent_from_parts(self._parts, Path())
        agent = self._make(loaded.settings, loaded.seed, name or loaded.name, frozen)
        agent.learner, agent.assets = loaded.learner, loaded.assets
        agent.as_of, agent.trace = loaded.as_of, loaded.trace
        return agent

    def _market(self, prices: pd.DataFrame) -> tuple[Market, dict[str, Any]]:
        """The market of the fitted tickers, and what is known about its data."""
        self._check_fitted()
        frame = check_prices(prices, allow_empty=True)
        known = [str(ticker) for ticker in self.feature_names_in_]
        missing = [ticker for ticker in known if ticker not in frame.columns]
        strange = [ticker for ticker in frame.columns if ticker not in known]
        if missing or strange:
            found = (missing, "missing"), (strange, "unknown")
            faults = [f"{', '.join(names)} {what}" for names, what in found if names]
            raise DataQualityError(
                f"prices: must have the tickers that the policy was fitted to ({'; '.join(faults)}); give prices of "
                "these, or fit it again."
            )
        return load_latest_frame(frame[known], self._plan().cash)

    def _remember(self, agent: Agent, market: Market, data: dict[str, Any]) -> None:
        """Keep what the agent has learned as the content of its files."""
        config = describe(agent, market, self._plan().cash, data)
        self._groups = self.groups, agent.settings.limits.groups
        groups = agent.settings.limits.model_dump(mode="json")["groups"] or None
        given = {**self.get_params(), "groups": groups}
        config["allocator"] = to_jsonable_python(given, fallback=lambda value: value.item())
        self._set_fitted(to_parts(agent, config), config, agent)

    def _set_fitted(self, parts: Mapping[str, bytes], config: Mapping[str, Any], agent: Agent) -> None:
        today = config["today"]["shielded" if self.shield else "weights"]
        findings = config["today"].get("findings", ()) if self.shield else ()
        assets = tuple(config["assets"])
        self._parts, self._limits = dict(parts), find_limits(self)
        self.feature_names_in_ = np.array(assets[1:], dtype=object)
        self.n_features_in_ = len(assets) - 1
        self.as_of_ = pd.Timestamp(config["as_of"])
        self.weights_ = _named(assets, np.array([today.get(asset, 0.0) for asset in assets]), config["as_of"], findings)
        self.trace_ = pd.DataFrame(agent.trace)

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("This SafeAllocator is not fitted yet; call fit(prices) first.")


def _named(assets: Sequence[str], weights: Array, day: Any, findings: Sequence[str] = ()) -> pd.Series:
    named = pd.Series(weights, index=pd.Index(assets, name="ticker"), name=pd.Timestamp(day))
    named.attrs["findings"] = tuple(findings)
    return named


PARAMETERS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(SafeAllocator.__init__).parameters.items()
    if name != "self"
}
"""The parameters of `SafeAllocator` and their defaults."""
