"""`SafeAllocator` against the agent that it stands for, in the manners of an estimator."""

import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo import backtest
from portfolio_sdpo.errors import (
    CheckpointError,
    DataQualityError,
    HistoryError,
    NotFittedError,
    RunError,
    SettingsError,
    WeightsError,
)
from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.portfolio.allocator import PARAMETERS, SafeAllocator
from portfolio_sdpo.portfolio.limits import read_held
from portfolio_sdpo.portfolio.market import Market, all_cash
from portfolio_sdpo.portfolio.presets import preset
from portfolio_sdpo.portfolio.shield import CvarLimit, shield
from portfolio_sdpo.portfolio.store import load_agent, train_agent

QUICK = {
    "history": 60,
    "paths": 16,
    "first": 20,
    "further": 2,
    "learner": {"kind": "analytic", "hidden": (8, 8), "learning_rate": 0.1},
}
COMMON = {"cvar": -0.02, "alpha": 0.1, "horizon": 5, "settings": QUICK}


@pytest.fixture(scope="module")
def frame(prices):
    """Prices that rise so fast that a policy soon invests, and the shield has something to do."""
    return prices(150, gaps=False).mul(np.exp(0.005 * np.arange(150)), axis=0)


@pytest.fixture(scope="module")
def fitted(frame):
    return SafeAllocator(**COMMON, max_weight=0.3, seed=3).fit(frame.iloc[:140])


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))


def agent_settings():
    return preset("default", "sdpo", config=QUICK, alpha=0.1, bound=-0.02, horizon=5, fee_bps=5.0)


PPO = {"kind": "ppo", "actor": {"hidden": (8, 8)}, "critic": {"kind": "mean", "hidden": (8, 8)}}


@pytest.mark.parametrize(("algorithm", "learner"), [("sdpo", QUICK["learner"]), ("ppo", PPO)])
def test_it_holds_what_the_agent_holds(frame, algorithm, learner):
    """The very weights of the agent with these settings, then through the shield."""
    market = Market.from_prices(frame)
    config = QUICK | {"episodes": 16, "learner": learner}
    agent = Agent(preset("default", algorithm, config=config, alpha=0.1, bound=-0.01, horizon=5, fee_bps=5.0), seed=0)
    expected = agent.decide(market, all_cash(5))
    policy = SafeAllocator(
        **COMMON | {"cvar": -0.01, "settings": config}, algorithm=algorithm, seed=0, shield=False
    ).fit(frame)
    np.testing.assert_array_equal(policy.predict(frame), expected)
    np.testing.assert_array_equal(policy.weights_, expected)
    pd.testing.assert_frame_equal(policy.trace_, pd.DataFrame(agent.trace))
    policy.set_params(shield=True)
    checked = shield(expected, market, agent.settings.limit)
    assert algorithm == "ppo" or checked.kappa < 1.0
    np.testing.assert_array_equal(policy.predict(frame), checked.weights)


def test_it_trains_what_the_command_trains(tmp_path):
    """`train` on the bundled sample with the same settings and seed: the same weights, served as stored."""
    from portfolio_sdpo.prices.load import load_prices

    trained = train_agent(preset("default", "sdpo", config=QUICK | {"first": 3}), seed=1, folder=tmp_path / "agent")
    policy = SafeAllocator(settings=QUICK | {"first": 3}, seed=1).fit(load_prices("sample"))
    weights = policy.weights_
    assert trained.config["today"]["shielded"] == weights[weights > 0].to_dict()
    loaded = SafeAllocator.load(tmp_path / "agent")
    pd.testing.assert_series_equal(loaded.weights_, weights)
    pd.testing.assert_series_equal(loaded.predict(load_prices("sample")), weights)
    assert loaded.get_params()["cvar"] == -0.05 and loaded.get_params()["fee_bps"] == 5.0


def test_weights_carry_what_the_shield_found(frame, fitted, tmp_path):
    told = "The shield has 139 of 1,260 sessions of history; the rest is filled by a cautious prior."
    assert fitted.weights_.attrs["findings"] == (told,)
    assert fitted.predict(frame.iloc[:140]).attrs["findings"] == (told,)
    jumped = frame.copy()
    jumped.iloc[-1] *= 10
    assert len(fitted.predict(jumped).attrs["findings"]) == 1 + (fitted.predict(jumped).drop("CASH") > 0).sum()
    fitted.save(tmp_path / "policy")
    assert SafeAllocator.load(tmp_path / "policy").weights_.attrs["findings"] == (told,)
    bare = SafeAllocator.load(tmp_path / "policy").set_params(shield=False)
    assert bare.predict(frame.iloc[:140]).attrs["findings"] == ()


def test_at_a_later_close_a_copy_trains_on_as_what_is_served_does(frame, fitted, tmp_path):
    uncapped = SafeAllocator(**COMMON, seed=3).fit(frame.iloc[:140])
    uncapped.save(tmp_path / "policy")
    market = Market.from_prices(frame)
    served = shield(load_agent(tmp_path / "policy").decide(market, all_cash(5)), market, agent_settings().limit)
    before = dict(uncapped._parts)
    np.testing.assert_array_equal(uncapped.predict(frame), served.weights)
    np.testing.assert_array_equal(uncapped.predict(frame), served.weights)
    assert uncapped._parts == before and uncapped.as_of_ == frame.index[139]
    frozen = uncapped.set_params(retrain=False).predict(frame)
    assert not np.array_equal(frozen, served.weights)
    still = load_agent(tmp_path / "policy")
    still.settings = still.settings.model_copy(update={"further": 0})
    wanted = shield(still.decide(market, all_cash(5)), market, agent_settings().limit).weights
    np.testing.assert_array_equal(frozen, wanted)


def test_partial_fit_trains_on_and_fits_what_is_new(frame):
    policy = SafeAllocator(**COMMON, seed=3).partial_fit(frame.iloc[:140])
    assert len(policy.trace_) == QUICK["first"]
    served = policy.predict(frame)
    policy.partial_fit(frame)
    assert len(policy.trace_) == QUICK["first"] + QUICK["further"] and policy.as_of_ == frame.index[-1]
    pd.testing.assert_series_equal(policy.weights_, served)


def test_weights_are_a_series_over_cash_and_tickers(frame, fitted):
    weights = fitted.predict(frame)
    assert weights.index.tolist() == ["CASH", *frame.columns] and weights.name == frame.index[-1]
    assert abs(weights.sum() - 1.0) < 1e-12 and (weights >= 0.0).all() and (weights.iloc[1:] <= 0.3).all()
    assert fitted.feature_names_in_.tolist() == list(frame.columns) and fitted.n_features_in_ == 4
    pd.testing.assert_series_equal(fitted.predict(frame[frame.columns[::-1]]), weights)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5), st.floats(0.05, 1.0), st.integers(100, 150))
def test_whatever_is_held_the_cap_and_the_limit_hold(frame, parts, cap, last):
    total = sum(parts)
    held = dict(zip(["CASH", *frame.columns], (np.array(parts) / total if total else all_cash(5)), strict=True))
    policy = copy.copy(_fitted_early(frame)).set_params(max_weight=cap)
    weights = policy.predict(frame.iloc[:last], held=held)
    assert abs(weights.sum() - 1.0) < 1e-9 and (weights >= 0.0).all() and (weights.iloc[1:] <= cap + 1e-12).all()
    limit = CvarLimit(bound=-0.02, alpha=0.1, horizon=5)
    assert shield(weights.to_numpy(), Market.from_prices(frame.iloc[:last]), limit).before >= limit.bound - 1e-12


_EARLY = {}


def _fitted_early(frame):
    if not _EARLY:
        _EARLY["policy"] = SafeAllocator(**COMMON, retrain=False).fit(frame.iloc[:100])
    return _EARLY["policy"]


def test_caps_and_turnover_are_part_of_what_is_saved(frame, tmp_path):
    groups = pd.DataFrame({"ticker": ["S0", "S1"], "group": "pair", "max_weight": 0.25})
    policy = SafeAllocator(**COMMON, max_weight=0.2, max_turnover=0.1, groups=groups, seed=3).fit(frame.iloc[:140])
    assert policy.weights_[["S0", "S1"]].sum() <= 0.25 and (policy.weights_.iloc[1:] <= 0.2).all()
    assert policy.weights_.iloc[1:].sum() > 0.2  # what is held is not known, so no turnover is
    held = {"S2": 0.15}
    weights = policy.predict(frame, held=held)
    assert abs(weights - pd.Series(held).reindex(weights.index).fillna(0)).iloc[1:].sum() <= 0.1 + 1e-9
    assert "on turnover leaves" in weights.attrs["findings"][-1]
    loaded = SafeAllocator.load(policy.save(tmp_path / "saved"))
    assert (loaded.max_weight, loaded.max_turnover) == (0.2, 0.1)
    pd.testing.assert_series_equal(loaded.predict(frame, held=held), weights)
    limits = load_agent(tmp_path / "saved").settings.limits
    assert limits.groups[0].tickers == ("S0", "S1") and limits.max_turnover == 0.1
    with pytest.raises(SettingsError, match="they were changed after the fit"):
        policy.set_params(max_weight=0.5).save(tmp_path / "other")


def test_a_fitted_policy_needs_no_file_of_groups(frame, tmp_path):
    path = tmp_path / "groups.csv"
    path.write_text("ticker,group,max_weight\nS0,pair,0.25\nS1,pair,\n")
    policy = SafeAllocator(**COMMON, groups=str(path), seed=3).fit(frame.iloc[:140])
    weights = policy.predict(frame)
    path.unlink()
    moved = pickle.loads(pickle.dumps(policy))
    for each in (policy, moved, SafeAllocator.load(moved.save(tmp_path / "saved"))):
        pd.testing.assert_series_equal(each.predict(frame), weights)
    with pytest.raises(SettingsError, match="groups: there is no file"):
        policy.set_params(groups=str(tmp_path / "other.csv")).predict(frame)


def test_a_backtest_keeps_a_policy_within_its_own_limits(frame):
    policy = SafeAllocator(**COMMON, max_turnover=0.1, max_weight=0.2, seed=3)
    result = backtest(frame, {"slow": policy, "1/N": "equal-weight"}, start=frame.index[100], intervals=False)
    trades = result.record.trades
    change = (trades["weight_after"] - trades["weight_before"]).abs()
    traded = change.groupby([trades["strategy"], trades["date"]]).sum()
    assert 0.09 < traded["slow"].max() <= 0.101 < traded["1/N"].max()
    assert (result.weights["slow + shield"].drop(columns="CASH") <= 0.2 + 1e-12).all(axis=None)


def test_what_is_held_counts(frame, fitted):
    as_mapping = fitted.predict(frame, held={"S0": 0.5})
    pd.testing.assert_series_equal(fitted.predict(frame, held=pd.Series({"CASH": 0.5, "S0": 0.5})), as_mapping)
    pd.testing.assert_series_equal(fitted.predict(frame, held=as_mapping), fitted.predict(frame, held=as_mapping))
    assert not np.array_equal(as_mapping, fitted.predict(frame))


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ({"CAHS": 0.5}, r"held: there is no CAHS \(did you mean 'CASH'\?\); there are CASH, S0"),
        ({"S0": 0.7, "S1": 0.7}, "held: weights reach down to -0.4"),
        ({"CASH": 0.7, "S0": 0.7}, "held: weights sum to 1.4"),
        ({"S0": -0.1}, "held: weights reach down to -0.1"),
        ({"S0": "much"}, "held: every share must be a number"),
        ({"S0": float("nan")}, "held: weights are not finite"),
    ],
)
def test_holdings_that_cannot_be_are_told(held, told):
    with pytest.raises(WeightsError, match=told):
        read_held(held, ("CASH", "S0", "S1", "S2", "S3"))


def test_the_manners_of_an_estimator(frame, fitted):
    sklearn = pytest.importorskip("sklearn.base")
    twin = sklearn.clone(fitted)
    assert twin.get_params() == fitted.get_params() and list(twin.get_params()) == list(PARAMETERS)
    assert not hasattr(twin, "weights_") and not hasattr(twin, "agent_")
    pd.testing.assert_series_equal(twin.fit(frame.iloc[:140]).weights_, fitted.weights_)
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(fitted)
    assert repr(SafeAllocator()) == "SafeAllocator()"
    assert repr(SafeAllocator(cvar=-0.1, max_weight=0.4)) == "SafeAllocator(cvar=-0.1, max_weight=0.4)"
    policy = SafeAllocator()
    assert policy.set_params(alpha=0.1, seed=2) is policy and (policy.alpha, policy.seed) == (0.1, 2)
    with pytest.raises(SettingsError, match=r"alpah: SafeAllocator has no such parameter \(did you mean 'alpha'\?\)"):
        policy.set_params(alpah=0.2)
    with pytest.raises(SettingsError, match="alpha"):
        policy.set_params(seed=5, alpha=2.0)
    assert (policy.alpha, policy.seed) == (0.1, 2)


def test_a_policy_from_before_there_was_a_choice_keeps_what_was_chosen_for_it(frame, fitted, tmp_path):
    """A new fit of it, and a backtest, are those of its own time: same close, from cash, the filtered shield."""
    folder = fitted.save(tmp_path / "policy")
    config = json.loads((folder / "config.json").read_text())
    del config["allocator"]["execution"]
    for field in ("execution", "training", "shield_form", "limits"):
        del config["settings"][field]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "SHA256SUMS").unlink()
    loaded = SafeAllocator.load(folder)
    again = loaded.strategy("again").settings
    assert (again.execution, again.training, again.shield_form) == ("same-close", "from-cash", "filtered")
    assert loaded.max_weight == 0.3
    old = {"alpha": 0.1, "bound": -0.02, "horizon": 5, "fee_bps": 5.0, "limits": {"max_weight": 0.3}}
    assert again == preset("lstm-same-close", config=QUICK, **old)
    now = fitted.strategy("now").settings
    assert (now.execution, now.training, now.shield_form) == ("next-close", "as-deployed", "calibrated")
    # Saved again without a new fit, it is the same policy; with another cap it would not be.
    twin = SafeAllocator.load(loaded.save(tmp_path / "again"))
    assert repr(twin) == repr(loaded) and twin.weights_.equals(loaded.weights_)
    assert twin.predict(frame.iloc[:140]).equals(loaded.predict(frame.iloc[:140]))
    with pytest.raises(SettingsError, match="changed after the fit"):
        twin.set_params(max_weight=0.2).save(tmp_path / "other")


def test_copies_pickles_and_folders_are_the_same_policy(frame, fitted, tmp_path):
    folder = fitted.save(tmp_path / "policy")
    assert sorted(path.name for path in folder.iterdir()) == [
        "SHA256SUMS",
        "config.json",
        "metrics.parquet",
        "policy.safetensors",
    ]
    expected = fitted.predict(frame)
    for twin in (SafeAllocator.load(folder), pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        pd.testing.assert_series_equal(twin.predict(frame), expected)
        pd.testing.assert_series_equal(twin.weights_, fitted.weights_)
        assert twin.max_weight == 0.3 and twin.as_of_ == fitted.as_of_
    with pytest.raises(RunError, match="never overwritten"):
        fitted.save(folder)
    content = bytearray((folder / "policy.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "policy.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"policy\.safetensors is damaged"):
        SafeAllocator.load(folder)
    (folder / "SHA256SUMS").unlink()
    with pytest.raises(CheckpointError):
        SafeAllocator.load(folder)
    with pytest.raises(RunError, match=r"holds no config\.json"):
        SafeAllocator.load(tmp_path)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"cvar": 0.05}, r"cvar: a loss is negative: give -0\.05 for 5 % \(got 0\.05\)\."),
        ({"cvar": "low"}, r"cvar: a loss is negative"),
        ({"alpha": 0.0}, "alpha: must be a share between 0 and 1"),
        ({"horizon": 1.5}, "horizon: must be a number of sessions"),
        ({"fee_bps": -1}, "fee_bps: must be basis points"),
        ({"max_weight": 40}, "max_weight: must be a share of at most 1"),
        ({"max_turnover": -1}, "max_turnover: must be a share from 0 on"),
        ({"groups": "nowhere.csv"}, "groups: there is no file nowhere.csv"),
        ({"seed": -1}, "seed: must be a whole number"),
        ({"cash": "lots"}, "cash: must be zero, tbill or a yearly rate"),
        ({"preset": "defualt"}, r"preset: there is no 'defualt' \(did you mean 'default'\?\)"),
        ({"algorithm": "spdo"}, r"algorithm: there is no agent 'spdo' \(did you mean 'sdpo'\?\)"),
        ({"settings": {"frist": 3}}, r"settings\.frist: there is no such field \(did you mean 'first'\?\)"),
        ({"settings": {"limit": {"alpha": 0.1}}}, "settings: give cvar, alpha and horizon instead of limit"),
    ],
)
def test_wrong_parameters_fail_at_construction_by_their_name(parameters, told):
    with pytest.raises(SettingsError, match=told):
        SafeAllocator(**parameters)


def test_what_cannot_be_asked_is_told(frame, fitted, tmp_path):
    for ask in (
        lambda policy: policy.predict(frame),
        lambda policy: policy.agent_,
        lambda policy: policy.save(tmp_path / "policy"),
    ):
        with pytest.raises(NotFittedError, match=r"not fitted yet; call fit\(prices\) first"):
            ask(SafeAllocator())
    with pytest.raises(DataQualityError, match=r"\(S0 missing; X unknown\)"):
        fitted.predict(frame.rename(columns={"S0": "X"}))
    with pytest.raises(HistoryError, match="knows prices up to"):
        fitted.predict(frame.iloc[:120])
    with pytest.raises(DataQualityError, match="look like returns"):
        SafeAllocator(**COMMON).fit(frame.pct_change())


def test_a_strategy_starts_untrained_unless_it_is_frozen(frame, fitted):
    fresh = fitted.strategy("mine")
    assert fresh.name == "mine" and fresh.learner is None and fresh.settings.further == 2
    frozen = copy.copy(fitted).set_params(retrain=False).strategy("mine")
    assert frozen.learner is not None and frozen.settings.further == 0 and frozen.as_of == np.datetime64(fitted.as_of_)
    once = SafeAllocator(**COMMON, retrain=False).strategy("mine")
    assert once.learner is None and once.settings.further == 0


def test_parameters_may_be_numpy_numbers(frame):
    policy = SafeAllocator(**COMMON | {"horizon": np.int64(5), "alpha": np.float32(0.1)}).fit(frame)
    assert policy.weights_.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("parameter", "says"),
    [({"algorithm": "none"}, "algorithm: must name an agent"), ({"settings": [1]}, "settings: must map fields")],
)
def test_parameters_that_name_no_policy(parameter, says):
    with pytest.raises(SettingsError, match=says):
        SafeAllocator(**parameter)
