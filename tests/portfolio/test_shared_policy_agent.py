"""The agent that decides with a shared policy: the same weights through every door, and all that other agents can."""

import hashlib
import io
import json
import pickle
import shutil
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from portfolio_sdpo import SafeAllocator, backtest, cli
from portfolio_sdpo.errors import CheckpointError, HistoryError, SettingsError
from portfolio_sdpo.portfolio import resume
from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.portfolio.market import all_cash, load_latest
from portfolio_sdpo.portfolio.presets import preset
from portfolio_sdpo.portfolio.resume import ResumableAgent, make_run_id
from portfolio_sdpo.portfolio.shared_policy import SHIPPED, SharedPolicy
from portfolio_sdpo.portfolio.shared_policy_agent import SharedPolicyAgent, build_agent
from portfolio_sdpo.portfolio.store import POLICY_FILE, load_agent, read_parts, to_parts, train_agent
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.backup import verify_registry
from portfolio_sdpo.registry.retrain import RetrainSettings, retrain
from portfolio_sdpo.report.result import render_report
from portfolio_sdpo.serving import ChampionDecisions
from portfolio_sdpo.serving.answer import AnswerSettings, make_answer
from tests.portfolio.shared_markets import draw_noise
from tests.portfolio.test_shared_policy import random_policy

MARKET = draw_noise(1500, 5, seed=1)
FRAME = pd.DataFrame(
    MARKET.gross_returns[:, 1:].cumprod(axis=0) * 100.0, index=pd.DatetimeIndex(MARKET.dates), columns=MARKET.tickers
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot called `five`."""
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    save(FRAME)
    return tmp_path / "home"


def save(frame: pd.DataFrame) -> None:
    given = Prices(to_wide(frame), "close", "total-return")
    Store().save("five", clean(given, calendar=None, carry=0), given, Request(source="file", calendar=None))


@pytest.fixture
def learner(tmp_path: Path) -> dict[str, object]:
    """A policy that leaves equal weights by half."""
    random_policy().save(tmp_path / "mine.safetensors")
    return {"kind": "shared", "policy": str(tmp_path / "mine.safetensors"), "deviation": 0.5}


def allocator(learner, **changes) -> SafeAllocator:
    return SafeAllocator(preset="default", settings={"learner": learner}, **changes)


def bare(weights: pd.Series) -> np.ndarray:
    return weights.to_numpy()


def call(*arguments: str):
    return CliRunner().invoke(cli.build_app(), list(arguments))


def test_a_fit_holds_what_the_policy_says_and_the_shield_lets_through(learner):
    raw = allocator(learner, shield=False).fit(FRAME)
    market = load_latest("five", "zero")[0]
    assert np.array_equal(bare(raw.weights_), random_policy().allocate(market, 0.5))
    shielded = allocator(learner, cvar=-0.02).fit(FRAME).weights_
    ratio = (shielded / raw.weights_).drop("CASH")
    assert ratio.to_numpy() == pytest.approx(np.full(5, ratio.iloc[0])) and 0.0 < ratio.iloc[0] < 1.0


def test_allocator_train_and_service_give_the_same_weights_to_the_last_bit(learner, tmp_path):
    fitted = allocator({**learner, "deviation": "earned"}).fit(FRAME)
    settings = preset("default", config={"learner": {**learner, "deviation": "earned"}})
    trained = train_agent(settings, snapshot="five", folder=tmp_path / "trained")
    assert bare(fitted.weights_).tolist() == list(trained.config["today"]["shielded"].values())
    assert np.array_equal(bare(fitted.predict(FRAME)), bare(fitted.weights_))
    Path(learner["policy"]).unlink()  # a trained agent carries its policy
    with Registry.open() as registry:
        model = registry.add_model(trained.folder)
        registry.promote(model.id, by="test", reason="first")
        decisions = ChampionDecisions(registry)
        answer = make_answer(decisions, decisions.read_state(), AnswerSettings(max_age_sessions=100_000))
    assert list(answer.content.weights.values()) == bare(fitted.weights_).tolist()
    evidence = trained.config["today"]["evidence"]
    assert evidence["sentence"] in answer.content.remarks and evidence["sentence"].startswith("The policy ")
    assert answer.content.deviation == evidence["deviation"]
    assert answer.content.promised_cvar is None


def test_what_is_loaded_is_what_was_saved_byte_by_byte(learner, tmp_path):
    fitted = allocator(learner).fit(FRAME)
    fitted.save(tmp_path / "saved")
    Path(learner["policy"]).unlink()
    parts = read_parts(tmp_path / "saved")
    agent = load_agent(tmp_path / "saved")
    assert isinstance(agent, SharedPolicyAgent)
    assert agent.policy.to_bytes() == random_policy().to_bytes()
    again = to_parts(agent, json.loads(parts["config.json"]))
    assert again[POLICY_FILE] == parts[POLICY_FILE]
    assert pd.read_parquet(io.BytesIO(again["metrics.parquet"])).equals(
        pd.read_parquet(io.BytesIO(parts["metrics.parquet"]))
    )
    loaded = SafeAllocator.load(tmp_path / "saved")
    for copy in (loaded, pickle.loads(pickle.dumps(fitted))):
        assert np.array_equal(bare(copy.predict(FRAME)), bare(fitted.weights_))


def test_clones_and_parameters(learner):
    sklearn = pytest.importorskip("sklearn.base")
    policy = allocator(learner, cvar=-0.03, seed=2)
    copy = sklearn.clone(policy)
    assert copy.get_params() == policy.get_params() and not hasattr(copy, "weights_")
    assert copy.fit(FRAME).weights_.equals(policy.fit(FRAME).weights_)


def test_permuted_tickers_permute_the_weights(learner):
    order = ["S03", "S00", "S04", "S02", "S01"]
    raw = allocator(learner, shield=False)
    there, back = raw.fit(FRAME[order]).weights_, raw.fit(FRAME).weights_
    assert there[order].tolist() == back[order].tolist()
    there, back = allocator(learner).fit(FRAME[order]).weights_, allocator(learner).fit(FRAME).weights_
    assert there[order].to_numpy() == pytest.approx(back[order].to_numpy(), rel=1e-9)


def test_all_is_cash_before_there_is_enough_history(learner):
    weights = allocator(learner).fit(FRAME.iloc[:12]).weights_
    assert weights["CASH"] == 1.0 and weights.sum() == 1.0


def test_a_largest_weight_holds(learner):
    weights = allocator(learner, max_weight=0.05, shield=False).fit(FRAME).weights_
    assert weights.drop("CASH").max() == 0.05


def test_evidence_is_earned_again_after_a_quarter_and_a_frozen_policy_keeps_its_own(learner):
    earned = {**learner, "deviation": "earned"}
    policy = allocator(earned).fit(FRAME.iloc[:1300])
    first = policy.trace_.iloc[-1]
    assert first["years"] == pytest.approx((1300 - 252) / 252, abs=0.6)
    assert policy.partial_fit(FRAME.iloc[:1310]).trace_.iloc[-1]["years"] == first["years"]
    assert policy.partial_fit(FRAME.iloc[:1400]).trace_.iloc[-1]["years"] > first["years"]
    frozen = allocator(earned, retrain=False).fit(FRAME.iloc[:1300])
    agent = frozen.strategy("frozen")
    agent.decide(MARKET, all_cash(6))
    assert agent.describe_evidence()["years"] == first["years"]
    assert agent.describe_evidence()["deviation"] == first["deviation"]


def test_a_resumed_backtest_ends_as_one_that_never_stopped(learner, monkeypatch):
    monkeypatch.setattr(resume, "MAX_SAVING_SHARE", 1e9)
    settings = preset("default", config={"learner": {**learner, "deviation": "earned"}})
    rows = range(1200, 1400, 5)

    def walk(run: str, stops: int | None) -> tuple[list, list]:
        agent = build_agent(settings)
        resumable = ResumableAgent(agent, run)
        found = [resumable.decide(MARKET.until(row), all_cash(6)).tolist() for row in list(rows)[:stops]]
        resumable.release()
        return found, agent.trace

    whole, trace = walk("whole", None)
    walk("stopped", 9)
    resumed, resumed_trace = walk("stopped", None)
    assert resumed == whole and json.dumps(resumed_trace) == json.dumps(trace)
    assert len({row["years"] for row in trace}) == 4  # reviews before and after the stop


def test_a_run_is_named_after_the_content_of_its_policy(learner, tmp_path):
    settings = preset("default", config={"learner": learner})
    before = make_run_id(build_agent(settings), {})
    assert make_run_id(build_agent(settings), {}) == before
    random_policy(seed=1).save(Path(learner["policy"]))
    assert make_run_id(build_agent(settings), {}) != before


def test_front_door_backtest_runs_it_beside_benchmarks(learner):
    result = backtest(FRAME, {"shared": allocator({**learner, "deviation": "earned"})}, start="1995-01-02")
    trace = result.record.trace
    assert {"deviation", "growth", "error", "years"} <= set(trace.columns)
    assert (trace["deviation"] >= 0.0).all() and trace["risk"].isna().all()
    assert "The constraint in training" not in render_report(result.record)
    assert {"shared", "shared + shield"} <= {record["strategy"] for record in result.record.metrics}


def test_retraining_continues_it_and_starts_afresh_with_another_policy(learner):
    save(FRAME.iloc[:1440])
    options = {"snapshot": "five", "preset": "default", "config": {"learner": {**learner, "deviation": "earned"}}}
    with Registry.open() as registry:
        retrain(RetrainSettings(**options), registry=registry)
        save(FRAME)
        retrain(RetrainSettings(), registry=registry)
        random_policy(seed=1).save(Path(learner["policy"]))
        retrain(RetrainSettings(), registry=registry)
        first, second, third = sorted(registry.models(), key=lambda model: model.added_at)
        assert verify_registry(registry).sound
    assert (first.parent, second.parent, third.parent) == (None, first.id, None)
    before, after, other = (model.config["today"]["evidence"] for model in (first, second, third))
    assert before["policy_sha256"] == after["policy_sha256"] != other["policy_sha256"]
    assert after["years"] - before["years"] == pytest.approx(60 / 252, abs=0.05)
    assert "its policy differs" in third.metrics["reason"]
    assert set(second.metrics) >= {"promote", "reason"} and len(second.config["record"]) > 20


def test_the_command_line_trains_and_backtests_it(learner, tmp_path):
    config = tmp_path / "mine.toml"
    config.write_text(f'[learner]\npolicy = "{learner["policy"]}"\ndeviation = "earned"\n')
    common = ("--preset", "default", "--config", str(config), "--snapshot", "five")
    result = call("train", *common)
    assert result.exit_code == 0, result.output
    assert "The policy " in result.stdout and "from equal weights" in result.stdout and "promised" not in result.stdout
    result = call("train", *common, "--json")
    assert json.loads(result.stdout)["today"]["evidence"]["policy_sha256"]
    folder = json.loads(result.stdout)["folder"]
    assert call("models", "add", folder).exit_code == 0
    assert "–" in call("models", "list").stdout
    result = call("backtest", *common, "--start", "1995-06-01", "--strategies", "cash")
    assert result.exit_code == 0, result.output
    assert "SDPO (shared)" in result.stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deviation": 1.5}, "deviation"),
        ({"deviation": "much"}, "deviation"),
        ({"polcy": "x"}, "polcy"),
    ],
)
def test_wrong_settings_are_told(learner, changes, message):
    with pytest.raises(SettingsError, match=message):
        AgentSettings(learner={**learner, **changes})


def test_weekly_prices_are_refused(learner):
    """Its features are of days, and a year of 52 sessions would be taken for a quarter of one."""
    with pytest.raises(HistoryError, match="trained on daily closes, and a session of these prices is a week"):
        allocator(learner).fit(FRAME.resample("W-FRI").last())


def test_a_policy_that_cannot_be_read_is_told(learner, tmp_path):
    with pytest.raises(CheckpointError, match=r"nowhere\.safetensors cannot be read"):
        allocator({**learner, "policy": str(tmp_path / "nowhere.safetensors")}).fit(FRAME)
    (tmp_path / "broken.safetensors").write_bytes(b"no policy")
    with pytest.raises(CheckpointError, match="damaged"):
        allocator({**learner, "policy": str(tmp_path / "broken.safetensors")}).fit(FRAME)


def test_a_wheel_holds_the_shipped_policy(tmp_path):
    root = Path(cli.__file__).parents[2]
    shutil.copytree(root / "portfolio_sdpo", tmp_path / "portfolio_sdpo")
    shutil.copytree(root / "app", tmp_path / "app")
    shutil.copytree(root / "data", tmp_path / "data")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(root / name, tmp_path)
    build = "import os, setuptools.build_meta as backend; os.makedirs('dist'); print(backend.build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        assert content.read(f"portfolio_sdpo/portfolio/{SHIPPED.name}") == SHIPPED.read_bytes()


def test_the_shipped_policy_decides_and_its_hash_is_that_of_its_file():
    policy = SafeAllocator(preset="default").fit(FRAME)
    evidence = policy.agent_.describe_evidence()
    assert evidence["policy_sha256"] == hashlib.sha256(SHIPPED.read_bytes()).hexdigest()
    assert policy.weights_.sum() == pytest.approx(1.0) and policy.trace_["deviation"].iloc[-1] == evidence["deviation"]


def test_no_warning_is_given(learner):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        allocator(learner).fit(FRAME)
    assert isinstance(SharedPolicy.load(Path(learner["policy"])), SharedPolicy)
