"""Workers of this machine: one thread each, used again, lost, given up, and gone when they should be."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from portfolio_sdpo.experiments.engine.parallel import (
    SINGLE,
    UNDER_WAY,
    GridCancelledError,
    Local,
    LostWorkerError,
    hold_lock,
    shared_folder,
)

from .grid_files import children, lives


def test_workers_have_one_thread_each_whatever_the_number_of_jobs(tmp_path: Path):
    def threads():
        import torch

        return torch.get_num_threads(), {name: os.environ[name] for name in SINGLE}

    with Local().open(tmp_path, jobs=2) as workers:
        assert workers.execute(threads) == (1, dict.fromkeys(SINGLE, "1"))
    assert "OMP_NUM_THREADS" in SINGLE and "MKL_NUM_THREADS" in SINGLE


def test_workers_are_used_again_and_gone_at_the_end(tmp_path: Path):
    before = children()
    with Local().open(tmp_path, jobs=2) as workers:
        first = workers.execute(os.getpid)
        assert workers.execute(os.getpid) == first != os.getpid()
        with pytest.raises(ZeroDivisionError):
            workers.execute(lambda: 1 / 0)
        assert workers.execute(os.getpid) == first
        with pytest.raises(LostWorkerError):
            workers.execute(lambda: os.kill(os.getpid(), signal.SIGKILL))
        assert workers.execute(os.getpid) not in (first, os.getpid())
    assert children() == before
    with pytest.raises(GridCancelledError, match="the grid was stopped"):
        workers.execute(os.getpid)


def test_one_job_is_this_process(tmp_path: Path):
    with Local().open(tmp_path, jobs=1) as workers:
        assert workers.execute(os.getpid) == os.getpid()


def test_the_lock_of_a_run_waits_for_its_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    order = []
    held = threading.Event()

    def hold() -> None:
        with hold_lock(tmp_path / "lock"):
            held.set()
            time.sleep(0.3)
            order.append("first")

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with monkeypatch.context() as patch:
        patch.setattr("portfolio_sdpo.experiments.engine.parallel.PATIENCE", 0.0)
        with pytest.raises(LostWorkerError, match="still holds the run"), hold_lock(tmp_path / "lock"):
            order.append("never")
    with hold_lock(tmp_path / "lock"):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_a_lock_file_that_is_removed_while_somebody_waits_for_it_is_no_lock(tmp_path: Path):
    """Whoever waited must not get in beside one who came after the file was removed."""
    path, order = tmp_path / "lock", []

    def wait() -> None:
        with hold_lock(path):
            order.append("waited")

    thread = threading.Thread(target=wait)
    with ExitStack() as later:
        with hold_lock(path):
            thread.start()
            time.sleep(0.15)
            path.unlink()
            later.enter_context(hold_lock(path))
        time.sleep(0.3)
        order.append("came after")
    thread.join()
    assert order == ["came after", "waited"]


def test_a_grid_takes_away_its_own_notes_and_nobody_elses(tmp_path: Path):
    with shared_folder(tmp_path) as first:
        with shared_folder(tmp_path) as second:
            assert first != second and first.parent == second.parent == tmp_path / UNDER_WAY
            (first / "seal").touch()
            with hold_lock(first.parent / "held.lock"):
                (first.parent / "free.lock").touch()
                second.rmdir()
                second.mkdir()
                with shared_folder(tmp_path):
                    pass
                # What is held stays, and what is not goes.
                assert {path.name for path in first.parent.iterdir()} == {first.name, second.name, "held.lock"}
        assert (first / "seal").exists() and not second.exists()
    assert not list(tmp_path.iterdir())


def test_what_is_under_way_when_the_grid_is_given_up_was_not_lost(tmp_path: Path):
    """Or it would be announced as a retry that never comes."""
    found: list[BaseException] = []

    def wait() -> None:
        try:
            workers.execute(lambda: time.sleep(600))
        except BaseException as error:
            found.append(error)

    before = children()
    with Local().open(tmp_path, jobs=2) as workers:
        thread = threading.Thread(target=wait)
        thread.start()
        while children() == before:
            time.sleep(0.01)
    thread.join()
    assert [type(error) for error in found] == [GridCancelledError]
    assert children() == before


ORPHANS = """
import os, sys, threading, time
from pathlib import Path
from portfolio_sdpo.experiments.engine.parallel import Local

def work():
    while True:
        time.sleep(0.05)

with Local().open(Path(sys.argv[1]), jobs=2) as workers:
    for _ in range(2):
        threading.Thread(target=lambda: workers.execute(work), daemon=True).start()
    print("ready", flush=True)
    time.sleep(600)
"""


def test_workers_end_with_their_command_even_if_that_is_killed(tmp_path: Path):
    """Or they would be at their runs still when the same command is given again."""
    with subprocess.Popen([sys.executable, "-c", ORPHANS, str(tmp_path)], stdout=subprocess.PIPE) as command:
        assert command.stdout is not None and command.stdout.readline() == b"ready\n"
        while len(workers := children(command.pid)) < 2:
            time.sleep(0.05)
        time.sleep(1.0)  # until they are at it
        command.kill()
    deadline = time.monotonic() + 60
    while any(map(lives, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(lives, workers))
