"""A walk that is killed goes on where it was, and ends with the same bytes as one that never stopped."""

import json
import multiprocessing
import os
import random
import signal
import warnings

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest import CvarLimit
from portfolio_sdpo.backtest.run import BacktestSettings
from portfolio_sdpo.portfolio import resume as walks
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.report.result import run_backtest

FORK = multiprocessing.get_context("fork")
DAYS = pd.bdate_range("2019-01-02", periods=120)
DECISIONS = 12
QUICK = AgentSettings(
    limit=CvarLimit(alpha=0.1, horizon=5),
    history=60,
    paths=16,
    first=4,
    further=2,
    every=1,
    learner={"kind": "analytic", "hidden": (4, 4), "learning_rate": 3e-2},
)


class Doubtful(Agent):
    """Warns of every third decision."""

    def decide(self, history, held):
        if len(history) % 3 == 0:
            warnings.warn("is in doubt.", stacklevel=1)
        return super().decide(history, held)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, prices):
    """What a backtest writes that is never stopped, by its seeds."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PORTFOLIO_SDPO_HOME", str(folder / "home"))
        save_prices(prices)
        return {seeds: contents(run(folder / str(len(seeds)), seeds=seeds).folder) for seeds in ((0,), (0, 1))}


@pytest.fixture(autouse=True)
def home(whole, tmp_path, monkeypatch, prices):
    """A snapshot called `walk`; walks are saved after every decision."""
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(walks, "MAX_SAVING_SHARE", 1e9)
    save_prices(prices)
    return tmp_path / "home"


def save_prices(prices):
    given = Prices(to_wide(prices(len(DAYS)).set_axis(DAYS)), "close", "total-return")
    Store().save("walk", clean(given, calendar=None, carry=0), given, Request(source="file", calendar=None))


def run(out, settings=QUICK, jobs=1, seeds=(0,), progress=None, **options):
    chosen = BacktestSettings(
        snapshot="walk",
        strategies=("cash",),
        agents=[{"label": "sdpo", "settings": settings.model_dump(mode="json")}],
        start=DAYS[90].date(),
        end=DAYS[90 + DECISIONS - 1].date(),
        limit=settings.limit,
        fee_bps=10,
        shield=True,
        seeds=seeds,
        bootstrap=None,
    )
    agents = [Doubtful(settings, seed) for seed in seeds]
    return run_backtest(chosen, out, progress, agents, jobs=jobs, **options)


def contents(folder):
    """Every file but those that hold the time."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.suffix != ".html" and path.name not in ("config.json", "SHA256SUMS")
    }


def saved():
    """Number of decisions in each walk that is kept."""
    return [len(json.loads(path.read_bytes())["decisions"]) for path in walks.home().glob("*/decisions.json")]


def in_child(target, *arguments):
    child = FORK.Process(target=target, args=arguments)
    child.start()
    return child


def test_killed_at_random_moments(whole, tmp_path):
    """SIGKILL, restart, SIGKILL, … until it is through."""
    rng = random.Random(0)
    kills = 0
    while True:
        child = in_child(run, tmp_path / "killed", QUICK, 1, (0, 1))
        goal = sum(saved()) + rng.randint(1, 7) if kills < 4 else 1000
        while child.is_alive() and sum(saved()) < goal:
            child.join(rng.uniform(0.001, 0.02))
        if child.exitcode == 0:
            break
        assert child.exitcode is None, "it ended by itself"
        child.kill()
        child.join()
        kills += 1
    assert kills >= 3
    assert contents(tmp_path / "killed") == whole[0, 1]
    assert b"is in doubt" in whole[0, 1]["metrics.json"]
    assert not list(walks.home().iterdir())  # what is written as a whole needs no crumbs


def killed_while_saving(out, call, when):
    """Dies before or after the `call`-th time that a file takes its place."""
    count, replace = 0, os.replace

    def deadly(*arguments):
        nonlocal count
        count += 1
        if count == call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*arguments)
        if count == call:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = deadly
    run(out)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_moment_of_saving(whole, tmp_path, when):
    for call in (1, 2, 3, 4):
        child = in_child(killed_while_saving, tmp_path / "killed", call, when)
        child.join(60)
        assert child.exitcode == -signal.SIGKILL
    told = []
    run(tmp_path / "killed", progress=lambda *news: told.append(news))
    assert told[0][1] > QUICK.first  # it did go on
    assert contents(tmp_path / "killed") == whole[(0,)]


class Stop(Exception):
    pass


def stop_after(updates):
    def watch(name, done, total):
        if done == updates:
            raise Stop

    return watch


def interrupted(tmp_path, settings=QUICK):
    with pytest.raises(Stop):
        run(tmp_path / "out", settings, progress=stop_after(15))
    (folder,) = walks.home().iterdir()
    return folder


def alter(path, kind):
    """An end that is no JSON, one digit of one weight, or what earlier versions wrote: no hash."""
    content = json.loads(path.read_text())
    if kind == "end":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    elif kind == "digit":
        content["decisions"][0]["weights"][0] += 0.001
        path.write_text(json.dumps(content))
    else:
        del content["sha256"]
        path.write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["end", "digit", "hash", "newest", "all"])
def test_what_is_damaged_is_done_again(whole, tmp_path, name, caplog):
    folder = interrupted(tmp_path)
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) == 2
    if name in ("newest", "all"):
        for path in files[-1:] if name == "newest" else files:
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    else:
        alter(folder / "decisions.json", name)
    told = []
    run(tmp_path / "out", progress=lambda *news: told.append(news))
    assert (told[0][1] > 0) == (name == "newest")
    assert contents(tmp_path / "out") == whole[(0,)]
    words = "decisions.json was changed after it was saved, or is of an earlier version: its decisions are made again."
    assert (words in caplog.text) == (name in ("end", "digit", "hash"))


def test_other_settings_are_another_walk_and_restart_forgets(tmp_path):
    interrupted(tmp_path)
    for number, (settings, options, begun) in enumerate(
        [(QUICK.model_copy(update={"further": 3}), {}, 0), (QUICK, {"seeds": (1,)}, 0), (QUICK, {"restart": True}, 0)]
    ):
        told = []
        run(tmp_path / str(number), settings, progress=lambda *news, told=told: told.append(news), **options)
        assert told[0][1] == begun


def test_in_several_processes_too(whole, tmp_path):
    folder = interrupted(tmp_path)
    told = []
    run(tmp_path / "out", seeds=(0, 1), jobs=2, progress=lambda *news: told.append(news))
    assert contents(tmp_path / "out") == whole[0, 1]
    total = QUICK.first + QUICK.further * (DECISIONS - 1)
    assert {("sdpo, seed 0", total, total), ("sdpo, seed 1", total, total)} <= set(told)
    assert not folder.exists()


def test_two_at_the_same_walk_do_not_disturb_each_other(whole, tmp_path):
    folder = interrupted(tmp_path)
    lock = walks._lock(folder)
    before = contents(folder)
    run(tmp_path / "out")
    assert contents(tmp_path / "out") == whole[(0,)]
    assert contents(folder) == before  # it belongs to the other one
    lock.close()


def test_saving_is_rare(tmp_path, monkeypatch):
    """Where saving takes long, it is done less often."""
    clock = {"now": 0.0}
    monkeypatch.setattr(walks, "MAX_SAVING_SHARE", 0.02)
    monkeypatch.setattr(walks.time, "monotonic", lambda: clock["now"])
    saves = []

    def slow(*arguments):
        clock["now"] += 1.0
        saves.append(clock["now"])

    monkeypatch.setattr(walks, "save_checkpoint", slow)

    class Quick:
        name, every, trace, learner, assets = "quick", 1, (), object(), ()
        seed, settings = 0, AgentSettings()

        def decide(self, history, held):
            clock["now"] += 10.0
            return held

    kept = walks.ResumableAgent(Quick(), "run")
    for day in DAYS[:40]:
        kept.decide(type("History", (), {"dates": [np.datetime64(day, "D")]}), np.ones(1))
    assert len(saves) == 1 + 390 // 51  # at once, and whenever 50 seconds have passed since
    kept.close()
    assert len(saves) == 2 + 390 // 51


def test_a_disk_without_room_does_not_end_the_walk(whole, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(walks, "write_atomically", full)
    run(tmp_path / "out")
    assert contents(tmp_path / "out") == whole[(0,)]
