"""A trained agent on disk: it comes back as it was, and what is damaged or taken is told."""

import json
import os

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest import CvarLimit
from portfolio_sdpo.errors import CheckpointError, DivergenceError, HistoryError, RunError, SettingsError
from portfolio_sdpo.portfolio import agent as agent_module
from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.portfolio.allocator import SafeAllocator
from portfolio_sdpo.portfolio.filtered_shield import shield_by_scenarios
from portfolio_sdpo.portfolio.market import Market, load_latest
from portfolio_sdpo.portfolio.shield import shield
from portfolio_sdpo.portfolio.store import FOLDERS, load_agent, today, train_agent
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import Store

DAYS = pd.bdate_range("2019-01-02", periods=150)
SMALL = {"actor": {"hidden": (8, 8)}, "critic": {"kind": "mean", "hidden": (8, 8)}}
QUICK = AgentSettings(
    limit=CvarLimit(bound=-0.001, alpha=0.1, horizon=5),
    history=60,
    paths=16,
    first=30,
    further=2,
    learner={"kind": "analytic", "hidden": (8, 8), "learning_rate": 3e-2},
)


@pytest.fixture(autouse=True)
def frame(tmp_path, monkeypatch, prices):
    """Prices of a snapshot called `walk`."""
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    frame = prices(len(DAYS), gaps=False).set_axis(DAYS)
    given = Prices(to_wide(frame), "close", "total-return")
    Store().save("walk", clean(given, calendar=None, carry=0), given, Request(source="file", calendar=None))
    return frame


def cash(market):
    return np.eye(len(market.assets))[0]


@pytest.mark.parametrize("learner", [QUICK.learner, {"kind": "ppo", **SMALL}])
def test_it_comes_back_as_it_was(frame, learner):
    settings = AgentSettings(**(dict(QUICK) | {"learner": learner, "first": 5}))
    trained = train_agent(settings, snapshot="walk", seed=3, label="mine")
    assert trained.folder.parent == FOLDERS.home() and FOLDERS.list() == (trained.folder,)
    assert sorted(path.name for path in trained.folder.iterdir()) == [
        "SHA256SUMS",
        "config.json",
        "metrics.parquet",
        "policy.safetensors",
    ]
    market, data = load_latest("walk", "zero")
    agent = load_agent(trained.folder)
    assert (agent.name, agent.seed, agent.settings, agent.trace) == ("mine", 3, settings, trained.agent.trace)
    weights = agent.decide(market, cash(market))
    assert (weights == trained.agent.decide(market, cash(market))).all()
    config = json.loads((trained.folder / "config.json").read_text())
    assert config["today"]["weights"] == {a: w for a, w in zip(market.assets, weights, strict=True) if w > 0}
    assert config["data"] == data and config["as_of"] == str(market.dates[-1]) and config["updates"] == 5

    longer = Market.from_prices(pd.concat([frame, frame.iloc[-1:].set_axis(DAYS[-1:] + pd.Timedelta(days=3))]))
    later = [each.decide(longer, cash(longer)) for each in (agent, trained.agent)]
    assert (later[0] == later[1]).all() and len(agent.trace) == 7


def test_today_is_told_before_and_after_the_shield():
    told = train_agent(QUICK, snapshot="walk").config["today"]
    market, _ = load_latest("walk", "zero")
    weights = np.array([told["weights"].get(asset, 0.0) for asset in market.assets])
    checked = shield(weights, market, QUICK.limit)
    assert list(told["shielded"].values()) == [weight for weight in checked.weights if weight > 0]
    assert told["kappa"] == checked.kappa and told["past"] == checked.before
    assert told["past_shielded"] == checked.after >= told["limit"] == -0.001


def test_findings_of_the_shield_are_kept():
    told = train_agent(QUICK, snapshot="walk").config["today"]
    assert told["findings"] == [
        "The shield has 149 of 1,260 sessions of history; the rest is filled by a cautious prior."
    ]


def test_an_agent_from_before_there_was_a_choice_keeps_the_filtered_shield(tmp_path):
    folder = train_agent(QUICK, snapshot="walk", folder=tmp_path / "agent").folder
    assert load_agent(folder).settings.shield_form == "calibrated"
    config = json.loads((folder / "config.json").read_text())
    del config["settings"]["shield_form"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "SHA256SUMS").unlink()
    agent, (market, _) = load_agent(folder), load_latest("walk", "zero")
    assert agent.settings.shield_form == "filtered"
    assert SafeAllocator.load(folder).settings["shield_form"] == "filtered"
    weights = np.array([0.2, 0.2, 0.2, 0.2, 0.2])
    assert today(agent, market, weights)["kappa"] == shield_by_scenarios(weights, market, QUICK.limit).kappa


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    one, two, other = (
        train_agent(QUICK, snapshot="walk", seed=seed, folder=tmp_path / name).folder
        for seed, name in ((0, "one"), (0, "two"), (1, "other"))
    )
    for name in ("policy.safetensors", "metrics.parquet"):
        assert (one / name).read_bytes() == (two / name).read_bytes() != (other / name).read_bytes()


def test_a_folder_that_is_taken_is_refused_before_the_work(tmp_path):
    (tmp_path / "precious").touch()
    told = []
    with pytest.raises(RunError, match="never overwritten"):
        train_agent(QUICK, snapshot="walk", folder=tmp_path, progress=told.append)
    assert not told


def test_what_goes_wrong_leaves_nothing(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"The agent cannot be written .*No space left"):
            train_agent(QUICK, snapshot="walk", folder=tmp_path / "agent")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    with pytest.raises(HistoryError, match="a window of 200 sessions needs"):
        train_agent(QUICK.model_copy(update={"limit": CvarLimit(horizon=200), "history": None}), snapshot="walk")
    assert not FOLDERS.home().exists()


def test_damage_is_told(tmp_path):
    folder = train_agent(QUICK, snapshot="walk", folder=tmp_path / "agent").folder
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "config.json").write_bytes(whole["config.json"].replace(b'"fee": 0', b'"fee": 1'))
    with pytest.raises(RunError, match=r"config\.json is damaged \(it was changed after it was written\)"):
        load_agent(folder)
    (folder / "config.json").write_bytes(whole["config.json"])
    (folder / "SHA256SUMS").unlink()  # as in folders of earlier versions
    for name, content, error, message in [
        ("policy.safetensors", whole["policy.safetensors"][:-9], CheckpointError, "is corrupt"),
        ("policy.safetensors", None, RunError, "holds no policy.safetensors, so it is no agent: .* `train` made"),
        ("metrics.parquet", b"PAR1", RunError, r"metrics\.parquet is damaged"),
        ("config.json", b"{", RunError, r"config\.json is damaged"),
        ("config.json", b'{"format": 1}', RunError, r"config\.json is damaged \('settings'\)"),
        ("config.json", b'{"format": 9}', RunError, "another version"),
        ("config.json", whole["config.json"].replace(b'"run": "', b'"run": "0'), CheckpointError, "other settings"),
    ]:
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content)
        with pytest.raises(error, match=message):
            load_agent(folder)
        (folder / name).write_bytes(whole[name])
    load_agent(folder)


def test_growth_beyond_all_numbers_is_a_sentence():
    assert agent_module._to_return(0.0) == 0.0
    with pytest.raises(DivergenceError, match=r"log growth .* is 800, beyond any account: check the prices\."):
        agent_module._to_return(800.0)


@pytest.mark.parametrize("field", ["paths", "episodes"])
def test_a_number_that_no_machine_holds_is_refused(field):
    with pytest.raises(SettingsError, match=field):
        AgentSettings.model_validate({field: 1e18})
