"""Retraining: who is promoted and why, nothing twice, and whatever breaks is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest.run import BacktestSettings, DeclaredAgent
from portfolio_sdpo.errors import (
    DivergenceError,
    HistoryError,
    RegistryError,
    RetrainBusyError,
    SettingsError,
    SnapshotError,
)
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.market import load_latest
from portfolio_sdpo.portfolio.store import train_agent
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.retrain import RetrainSettings, retrain
from portfolio_sdpo.registry.training_plan import load_champion, plan_training
from portfolio_sdpo.report.result import run_backtest
from tests.registry.retrain_examples import QUICK, go

pytestmark = pytest.mark.usefixtures("home")

IDLE = {**QUICK, "first": 1, "further": 0, "learner": {**QUICK["learner"], "learning_rate": 1e-9}}
"""Stays in cash."""


def rising(up: dict[int, float], sessions: int = 200, start: str = "2020-01-01") -> pd.DataFrame:
    """Two stocks that gain a little almost every session; `up`: another gain of both at that one."""
    rng = np.random.default_rng(0)
    moves = 0.004 + 0.002 * rng.standard_normal((sessions, 2))
    for session, gain in up.items():
        moves[session] = gain
    return pd.DataFrame(100 * np.cumprod(1 + moves, 0), pd.bdate_range(start, periods=sessions), ["AAA", "BBB"])


def test_nights(registry: Registry, sample: pd.DataFrame, prices: Callable[..., str]):
    """Night after night a child goes on from its parent, with a few updates, and carries a record of the same length.

    In SQLite and in PostgreSQL.
    """
    prices(sample.iloc[:-6])
    told: list[tuple[float, str]] = []
    asked = RetrainSettings(snapshot="mine", config=QUICK, holdout=20)
    first = retrain(asked, registry=registry, progress=lambda *what: told.append(what))
    assert first.outcome == "promoted" and first.champion_id == first.model_id and first.new
    assert "started from scratch, because there is no champion yet" in first.reason
    # Twenty sessions can break a limit over five, and cannot test it.
    assert "(not tested: 4 of the 20 periods that a test needs)" in first.reason
    shares = [share for share, _ in told]
    assert shares == sorted(shares) and shares[0] >= 0.0 and shares[-1] == 1.0
    line = [first.model_id]
    for cut in (-4, -3, None):
        prices(sample.iloc[:cut], keep=False)
        # Snapshot and settings are the champion's.
        done = retrain(RetrainSettings(update=True, holdout=20), registry=registry)
        assert done.outcome == "promoted" and f"continued from the champion {line[-1]}" in done.reason
        model = registry.model(str(done.model_id))
        parent = registry.model(str(line[-1]))
        assert model.parent == parent.id and registry.champion().model_id == model.id
        # One more decision, at the last close: two sessions, then one, then three are fewer than five.
        assert model.metrics["updates"] == QUICK["further"] and model.metrics["started_from"] == parent.id
        assert model.config["updates"] == parent.config["updates"] + QUICK["further"]
        assert len(registry.load_agent(model.id).trace) == QUICK["further"]
        record, before = model.config["record"], parent.config["record"]
        assert max(record) == str(model.as_of) and len(record) <= 20 // 5 + 5
        shared = record.keys() & before.keys()
        assert len(shared) >= len(record) - 1 and all(record[day] == before[day] for day in shared)
        assert registry.run(done.run_id).reason == registry.champion().reason == model.metrics["reason"] == done.reason
        line.append(done.model_id)
    assert [each.model_id for each in reversed(registry.promotions())] == line
    assert registry.verify_promotions().sound and registry.damaged_models() == {}


def test_as_a_backtest(local: Registry):
    """A line that begins is judged by exactly the shielded track of a backtest, and ends as its agent did."""
    settings = AgentSettings.model_validate({**QUICK, "limit": {"horizon": 5, "alpha": 0.2, "bound": -0.02}})
    done = go(local, config={**QUICK, "limit": settings.limit.model_dump()}, fee_bps=10)
    model = local.model(str(done.model_id))
    start = model.metrics["holdout"]["first"]
    agent = Agent(AgentSettings.model_validate(model.settings), 0, "sdpo")
    declared = (DeclaredAgent(label="sdpo"),)
    asked = BacktestSettings(
        strategies=(), agents=declared, start=start, fee_bps=10, limit=settings.limit, shield=True, bootstrap=None
    )
    result = run_backtest(asked, agents=[agent])
    shielded = next(record for record in result.record.metrics if record["kind"] == "shielded")
    for name in ("final_wealth", "cvar_window", "turnover", "cost"):
        assert model.metrics["challenger"][name] == pytest.approx(shielded[name], rel=1e-9), name
    mine, theirs = local.load_agent(model.id), agent
    assert mine.as_of == theirs.as_of and len(mine.trace) == len(theirs.trace)
    market, _ = load_latest(None, "zero")
    held = np.eye(len(market.assets))[0]
    np.testing.assert_allclose(mine.decide(market, held), theirs.decide(market, held), rtol=1e-5)


def test_caps_are_handed_down(local: Registry, sample: pd.DataFrame, prices: Callable[..., str]):
    """The challenger of the next night has them, and both were evaluated with them."""
    caps = {"max_weight": 0.05, "max_turnover": 0.5, "groups": []}
    first = go(local, prices(sample.iloc[:-5]), config={**QUICK, "limits": caps})
    prices(sample)
    second = retrain(RetrainSettings(holdout=20), registry=local)
    assert (first.outcome, second.outcome) == ("promoted", "promoted") and second.model_id != first.model_id
    for result in (first, second):
        model = local.model(result.model_id)
        assert model.settings["limits"] == caps
        assert 0.0 < sum(w for name, w in model.config["today"]["shielded"].items() if name != "CASH") <= 0.15
        assert model.metrics["challenger"]["turnover"] > 0.0
        for weights in model.config["record"].values():
            assert max((w for name, w in weights.items() if name != "CASH"), default=0.0) <= 0.05


def test_caps_alone_change_nothing_else_of_the_champion(local: Registry, sample: pd.DataFrame, prices):
    first = local.model(go(local, prices(sample)).model_id)
    done = retrain(RetrainSettings(config={"limits": {"max_weight": 0.05}}, holdout=20), registry=local)
    second = local.model(done.model_id)
    assert second.settings["limits"]["max_weight"] == 0.05 and "started from scratch" in done.reason
    assert {**second.settings, "limits": first.settings["limits"]} == dict(first.settings)


def test_another_fee_leaves_the_caps_and_a_preset_does_not(local: Registry, sample: pd.DataFrame, prices):
    go(local, prices(sample), config={**QUICK, "limits": {"max_weight": 0.05}})
    champion = load_champion(local)
    for settings in (RetrainSettings(fee_bps=7), RetrainSettings(config={"limits": {"max_turnover": 0.5}})):
        assert plan_training(settings, champion, local).settings.limits.max_weight == 0.05
    assert plan_training(RetrainSettings(preset="default"), champion, local).settings.limits.max_weight is None


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"max_weight": 3}, "limits: .*max_weight|max_weight"),
        ({"max_wait": 0.3}, "max_wait"),
        (5, r"limits: must be a table such as \[limits\]"),
    ],
)
def test_wrong_caps_are_named(local: Registry, sample: pd.DataFrame, prices, limits, sentence):
    go(local, prices(sample))
    with pytest.raises(SettingsError, match=sentence) as refused:
        plan_training(RetrainSettings(config={"limits": limits}), load_champion(local), local)
    assert "another version" not in str(refused.value)


def test_same_again_is_nothing(local: Registry, sample: pd.DataFrame, prices: Callable[..., str]):
    prices(sample)
    first = go(local, "mine")
    again = go(local, "mine")
    assert (again.outcome, again.run_id, again.model_id) == ("promoted", first.run_id, first.model_id)
    assert not again.new and "Nothing new" in again.reason
    other = go(local, "mine", seed=1)
    assert other.new and "its seed differs from the champion's" in other.reason
    assert len(local.runs(kind="retrain")) == 2 and len(local.promotions()) == 2
    local.rollback("drawdown")
    taken_back = go(local, "mine", seed=1)
    assert taken_back.outcome == "kept" and "rolled back since" in taken_back.reason and not taken_back.new
    assert taken_back.champion_id == first.model_id and len(local.promotions()) == 3


def test_a_trained_champion_knows_these_prices(local: Registry, tmp_path: Path, sample, prices):
    """One that `train` made, without a record, is a parent like any other."""
    prices(sample.iloc[:-2])
    settings = AgentSettings.model_validate(QUICK)
    champion = local.add_model(train_agent(settings, snapshot="mine", folder=tmp_path / "agent").folder).id
    local.promote(champion, "by hand")
    nothing = retrain(RetrainSettings(holdout=20), registry=local)
    assert nothing.outcome == "kept" and "Nothing new: the champion" in nothing.reason and nothing.model_id is None
    assert retrain(RetrainSettings(holdout=20), registry=local).run_id == nothing.run_id
    prices(sample)
    done = retrain(RetrainSettings(holdout=20), registry=local)
    model = local.model(str(done.model_id))
    assert done.outcome == "promoted" and model.parent == champion
    # A stand-in decided before the champion's close, the champion at it, the child at the last.
    assert str(local.model(champion).as_of) in model.config["record"] and len(model.config["record"]) == 4 + 1 + 1
    prices(sample.iloc[:-5])
    old = retrain(RetrainSettings(holdout=20), registry=local)
    assert old.outcome == "kept" and "the prices end on" in old.reason


def test_kept_when_worse(local: Registry, prices: Callable[..., str], monkeypatch: pytest.MonkeyPatch):
    """In a market that rises every day, cash is clearly worse."""
    # All in one second, so that the same agent trained twice is the same model to the byte.
    second = type("Second", (datetime,), {"now": classmethod(lambda cls, zone: datetime(2026, 1, 1, tzinfo=zone))})
    monkeypatch.setattr("portfolio_sdpo.portfolio.store.datetime", second)
    prices(rising({}))
    champion = go(local, "mine", config={**QUICK, "first": 40})
    done = go(local, "mine", config=IDLE)
    assert done.outcome == "kept" and done.champion_id == champion.model_id, done.reason
    assert "clearly worse" in done.reason and "settings differ" in done.reason
    model = local.model(str(done.model_id))
    low, high = model.metrics["difference"]["interval"]
    assert low <= high < 0 and model.metrics["limit"]["kept"] and model.parent is None
    assert local.run(done.run_id).outcome == "kept" and local.champion().model_id == champion.model_id
    # The other way round it is better, and takes the place.
    local.promote(model.id, "by hand")
    back = go(local, "mine", config={**QUICK, "first": 40})
    assert back.model_id == champion.model_id
    assert back.outcome == "promoted" and local.model(str(back.model_id)).metrics["difference"]["interval"][0] > 0


def test_kept_when_the_limit_broke(local: Registry, prices: Callable[..., str]):
    """A crash that nothing foretold."""
    prices(rising({190: -0.3}))
    done = go(local, "mine", config={**QUICK, "first": 40, "limit": {**QUICK["limit"], "bound": -0.05}})
    assert done.outcome == "kept" and "beyond the limit of −5\xa0%" in done.reason, done.reason
    assert local.champion() is None and done.champion_id is None
    assert local.model(str(done.model_id)).metrics["limit"]["kept"] is False


def test_no_peeking(home: Path, prices: Callable[..., str]):
    """What is decided on held-out days does not depend on what comes after them."""
    prices(rising({}), "one")
    prices(rising({195: 0.2}), "two")
    records = []
    for name in ("one", "two"):
        with Registry.open(str(home / f"{name}.db")) as registry:
            records.append(registry.model(str(go(registry, name).model_id)).config["record"])
    cut = str(np.datetime64(rising({}).index[194], "D"))
    before = [{day: weights for day, weights in record.items() if day <= cut} for record in records]
    assert before[0] == before[1] and len(before[0]) >= 3


def test_another_universe(local: Registry, sample: pd.DataFrame, prices: Callable[..., str]):
    """From scratch; compared as long as the champion's stocks are there."""
    first = go(local, prices(sample.iloc[:, :2], "few"))
    more = go(local, prices(sample, "more"))
    assert "its assets differ from the champion's" in more.reason and "minus the champion's" in more.reason
    assert local.model(str(more.model_id)).parent is None
    if more.outcome == "promoted":
        local.rollback("for the test")
    gone = go(local, prices(sample.iloc[:, 1:], "others"))
    assert f"not compared with the champion {first.model_id}, because there are no prices of" in gone.reason
    assert gone.outcome == "promoted"


def test_damaged_champion(registry: Registry, alter: Callable[..., None], sample, prices):
    """The job goes on with its snapshot and settings, from scratch, and says why."""
    prices(sample)
    first = go(registry, "mine")
    alter(f"UPDATE model_parts SET sha256 = 'x' WHERE model_id = '{first.model_id}'")
    prices(sample.iloc[:-1], "mine")
    done = retrain(RetrainSettings(holdout=20), registry=registry)
    assert done.outcome == "promoted" and "the champion cannot be loaded" in done.reason and "damaged" in done.reason
    model = registry.model(str(done.model_id))
    assert model.settings == registry.model(str(first.model_id)).settings
    assert model.config["data"]["snapshot"] == "mine" and registry.load_agent(model.id).as_of is not None
    alter(f"UPDATE models SET label = 'x' WHERE id = '{done.model_id}'")
    last = retrain(RetrainSettings(holdout=20), registry=registry)
    assert last.outcome == "promoted" and registry.model(str(last.model_id)).config["data"]["snapshot"] == "mine"


def test_diverging_warm_start_begins_anew(local: Registry, sample, prices, monkeypatch: pytest.MonkeyPatch):
    prices(sample.iloc[:-1])
    champion = local.model(str(go(local, "mine").model_id))
    prices(sample)
    real = Agent.decide

    def decide(self: Agent, history: Any, held: Any) -> Any:
        if str(self.as_of) == str(champion.as_of) < str(history.dates[-1]):
            raise DivergenceError("the return of a price path is not finite: lower the learning rate.")
        return real(self, history, held)

    monkeypatch.setattr(Agent, "decide", decide)
    done = go(local, "mine")
    assert done.outcome == "promoted" and local.model(str(done.model_id)).parent is None
    assert "because continuing from the champion diverged" in done.reason
    assert "not compared with the champion" in done.reason and "could not be simulated" in done.reason


def test_failures_are_noted(local: Registry, sample: pd.DataFrame, prices: Callable[..., str]):
    prices(sample.iloc[:30], "short")
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"snapshot": "nowhere"}, SnapshotError, "nowhere"),
        ({"snapshot": None, "update": True}, SettingsError, "never changes"),
        ({"preset": "none"}, SettingsError, "preset"),
        ({"algo": "none"}, SettingsError, "nothing can be trained"),
        ({"snapshot": "short"}, HistoryError, "hold out fewer"),
        ({"holdout": 3}, SettingsError, "at least the limit's horizon of 5 sessions"),
    ]
    for changes, kind, words in cases:
        with pytest.raises(kind, match=words):
            go(local, **{"snapshot": None, **changes})
        (run,) = local.runs(kind="retrain", limit=1)
        assert run.status == "failed" and words in str(run.reason) and run.ended_at is not None
    assert len(local.runs(kind="retrain", status="failed")) == len(cases) and local.champion() is None
    with pytest.raises(KeyboardInterrupt):
        retrain(RetrainSettings(config=QUICK, holdout=20), registry=local, progress=_interrupt)
    assert local.runs(kind="retrain", limit=1)[0].reason == "The retrain was interrupted."
    assert go(local).outcome == "promoted"


def _interrupt(share: float, what: str) -> None:
    raise KeyboardInterrupt


def test_settings_are_checked():
    with pytest.raises(SettingsError, match="holdout"):
        RetrainSettings(holdout=1)
    with pytest.raises(SettingsError, match="confidence"):
        RetrainSettings(confidence=1.0)
    assert issubclass(RetrainBusyError, RegistryError)
    assert json.loads(RetrainSettings(config=QUICK).model_dump_json())["config"]["first"] == 6
