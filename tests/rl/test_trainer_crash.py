"""Runs that are killed, interrupted or out of disk: what was saved is whole, and a resumed run ends as any other."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import time

import pytest

from portfolio_sdpo.errors import (
    CheckpointError,
    RunError,
)
from portfolio_sdpo.rl import checkpoint
from tests.rl.training_examples import (
    contents,
    names,
    run_settings,
    trainer,
)

# Real processes, really killed. They are forked: each starts in milliseconds and sees what the test has prepared.
FORK = multiprocessing.get_context("fork")


def in_child(target, *arguments):
    child = FORK.Process(target=target, args=arguments)
    child.start()
    return child


def run_to_the_end(settings, folder):
    trainer(settings, folder).run()


@pytest.fixture(scope="module", params=[False, True], ids=["in turn", "overlapped"])
def undisturbed(request, tmp_path_factory):
    settings = run_settings("sdpo", iterations=30, overlap=request.param)
    trainer(settings, tmp_path_factory.mktemp("warm")).run()  # imports and first calls do not count
    folder = tmp_path_factory.mktemp("undisturbed")
    begun = time.perf_counter()
    trainer(settings, folder).run()
    return settings, contents(folder), time.perf_counter() - begun


@pytest.mark.parametrize("seed", [0, 1])
def test_killed_at_random_moments(undisturbed, tmp_path, seed):
    """SIGKILL, restart, SIGKILL, … until it is through: the same bytes."""
    settings, expected, duration = undisturbed
    rng = random.Random(seed)
    kills = 0
    while True:
        child = in_child(run_to_the_end, settings, tmp_path)
        child.join(rng.uniform(0.02, 0.25) * duration if kills < 12 else 60)
        if child.exitcode == 0:
            break
        assert child.exitcode is None, "it ended by itself"
        child.kill()
        child.join()
        if child.exitcode == 0:  # through just before the signal came
            break
        assert child.exitcode == -signal.SIGKILL
        kills += 1
    assert kills >= 3
    assert contents(tmp_path) == expected


def killed_while_saving(settings, folder, call, when):
    """Dies before or after the `call`-th time that a file takes its place, or half way through writing it."""
    count = 0
    replace, fsync = os.replace, os.fsync

    def deadly(*arguments):
        nonlocal count
        count += 1
        if count == call and when in ("before", "written"):
            os.kill(os.getpid(), signal.SIGKILL)
        (replace if when != "written" else fsync)(*arguments)
        if count == call:
            os.kill(os.getpid(), signal.SIGKILL)

    if when == "written":
        os.fsync = deadly
    else:
        os.replace = deadly
    run_to_the_end(settings, folder)


@pytest.mark.parametrize("when", ["written", "before", "after"])
def test_killed_at_every_moment_of_saving(tmp_path, when):
    """config.json, then metrics and checkpoint in turn: five times in a row the run dies one file later."""
    settings = run_settings("pd-var", iterations=30)
    trainer(settings, tmp_path / "whole").run()
    folder = tmp_path / "killed"
    for call in range(1, 6):
        child = in_child(killed_while_saving, settings, folder, call, when)
        child.join(60)
        assert child.exitcode == -signal.SIGKILL
    run_to_the_end(settings, folder)
    assert contents(folder) == contents(tmp_path / "whole")


def interrupted_in_an_update(settings, folder, times):
    """Ctrl-C in the middle of the fifth update, once or twice; the exit code says whether the run was interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = trainer(settings, folder)
    fit = run.algorithm.critics.fit

    def fit_and_interrupt(*arguments):
        fitted = fit(*arguments)
        if run.iteration == 4:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        return fitted

    run.algorithm.critics.fit = fit_and_interrupt
    try:
        run.run()
    except KeyboardInterrupt:
        os._exit(7)


@pytest.mark.parametrize("times, reached", [(1, 5), (2, 3)])
def test_an_interrupt_saves_a_whole_iteration(tmp_path, times, reached):
    """The first Ctrl-C waits for the update to be complete and saves; a second one does not wait, nor save."""
    settings = run_settings("sdpo")
    trainer(settings, tmp_path / "whole").run()
    folder = tmp_path / "stopped"
    child = in_child(interrupted_in_an_update, settings, folder, times)
    child.join(60)
    assert child.exitcode == 7
    resumed = trainer(settings, folder)
    assert resumed.iteration == reached
    resumed.run()
    assert contents(folder)["metrics.parquet"] == contents(tmp_path / "whole")["metrics.parquet"]
    assert contents(folder)[names([9])[0]] == contents(tmp_path / "whole")[names([9])[0]]


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_full_disk_leaves_the_earlier_checkpoint(tmp_path, monkeypatch, function):
    settings = run_settings("ppo")
    folder = tmp_path / "run"
    run = trainer(settings, folder)
    original = getattr(os, function)

    def full(*arguments):
        if run.iteration >= 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*arguments)

    monkeypatch.setattr(os, function, full)
    with pytest.raises(RunError, match=r"cannot save to .*No space left on device.*make room and run again"):
        run.run()
    assert [path.name for path in checkpoint.checkpoints(folder)] == names([3])
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    monkeypatch.undo()
    trainer(settings, folder).run()
    trainer(settings, tmp_path / "whole").run()
    assert contents(folder) == contents(tmp_path / "whole")


def test_a_corrupt_checkpoint_can_be_deleted(tmp_path):
    settings = run_settings("sdpo")
    trainer(settings, tmp_path).run()
    expected = contents(tmp_path)
    newest = checkpoint.checkpoints(tmp_path)[-1]
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="delete it to continue from the one before it"):
        trainer(settings, tmp_path)
    newest.unlink()
    again = trainer(settings, tmp_path)
    assert again.iteration == 6
    again.run()
    assert contents(tmp_path) == expected
