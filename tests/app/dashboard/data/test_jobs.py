"""Jobs with real processes: they outlive who started them, and whatever ends them, the truth is told."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from portfolio_sdpo.common.files import is_alive, mark_alive
from portfolio_sdpo.errors import NotRegisteredError, RetrainBusyError, RunError
from portfolio_sdpo_app.dashboard.data import jobs

SLEEPER = """
import json, os, signal, sys, time
from pathlib import Path
file = Path(os.environ["PORTFOLIO_SDPO_PROGRESS"])
file.with_name("child").write_text(str(os.getpid()))
file.write_text(json.dumps([0.25, "half of the half"]))
time.sleep(60)
"""
"""A command that says how far it is, and then takes its time."""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    yield tmp_path
    for each in jobs.list_jobs():
        with suppress(OSError, ValueError):
            if each.running:
                os.killpg(int((each.folder / "pid").read_text()), signal.SIGKILL)


def command(monkeypatch, script: str) -> None:
    """Run this in place of the command line; it sees the arguments."""
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", script))


def until(folder: Path, wanted, seconds: float = 20.0) -> jobs.DashboardJob:
    """The job, once it is as wanted."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = jobs.read(folder)
        if wanted(found):
            return found
        time.sleep(0.02)
    raise AssertionError(f"{found}: {found.log()}")


def over(found: jobs.DashboardJob) -> bool:
    return not found.running


def asleep(found: jobs.DashboardJob) -> bool:
    """The command itself runs, not only the process around it."""
    return found.job.fraction == 0.25


def child_of(found: jobs.DashboardJob) -> int:
    return int((found.folder / "child").read_text())


def test_a_job_runs_the_command_as_a_list_and_keeps_what_it_printed(monkeypatch):
    command(
        monkeypatch,
        "import json, sys; print(json.dumps({'got': sys.argv[1:], 'records': [1]})); sys.stderr.write('hm')",
    )
    odd = ["--snapshot", "a b; rm -rf $HOME", "--alpha", "0.1"]
    begun = jobs.start("backtest", odd, title="on a b", config="first = 3\n")
    assert begun.running and begun.job.kind == "backtest" and begun.title == "on a b"
    done = until(begun.folder, over)
    config = str(begun.folder / "config.toml")
    assert done.job.status == "done" and done.job.fraction == 1.0 and done.job.error is None
    assert done.job.result == {"got": ["backtest", *odd, "--json", "--config", config]}
    assert Path(config).read_text() == "first = 3\n" and done.log() == "hm"
    assert done.job.ended_at >= done.job.created_at
    assert [each.job for each in jobs.list_jobs()] == [done.job]


@pytest.mark.parametrize(
    "kind, code, status", [("retrain", 3, "done"), ("retrain", 4, "failed"), ("backtest", 1, "failed")]
)
def test_exit_codes_are_told_apart(monkeypatch, kind, code, status):
    printed = json.dumps({"outcome": "kept"}) if code == 3 else ""
    said = "Error: it is so.\n"
    command(monkeypatch, f"import sys; print({printed!r}); sys.stderr.write({said!r}); sys.exit({code})")
    job = until(jobs.start(kind, []).folder, over).job
    assert job.status == status
    assert job.error == (None if status == "done" else "it is so.")
    assert job.result == ({"outcome": "kept"} if status == "done" else None)


def test_progress_is_read_and_a_half_written_file_does_no_harm(monkeypatch):
    command(monkeypatch, SLEEPER)
    found = until(jobs.start("backtest", []).folder, asleep)
    assert (found.job.status, found.job.progress) == ("running", "half of the half")
    (found.folder / "progress.json").write_text("[0.5, ")
    assert jobs.read(found.folder).job.fraction == 0.0


@pytest.mark.parametrize(
    "victim, status, error",
    [
        ("command", "failed", "The process was terminated by SIGKILL: start it again with the same settings"),
        ("both", "failed", "The process was killed, or the machine was restarted: start it again"),
    ],
)
def test_kill_9_is_told(monkeypatch, victim, status, error):
    command(monkeypatch, SLEEPER)
    found = until(jobs.start("backtest", []).folder, asleep)
    group = int((found.folder / "pid").read_text())
    os.kill(child_of(found), signal.SIGKILL) if victim == "command" else os.killpg(group, signal.SIGKILL)
    job = until(found.folder, over).job
    assert job.status == status and error in job.error


def test_a_command_whose_process_around_it_is_killed_still_counts_as_running(monkeypatch):
    command(monkeypatch, SLEEPER.replace("time.sleep(60)", 'time.sleep(1.5); print(\'{"folder": "x"}\')'))
    found = until(jobs.start("backtest", []).folder, asleep)
    os.kill(int((found.folder / "pid").read_text()), signal.SIGKILL)
    time.sleep(0.2)
    assert jobs.read(found.folder).running
    job = until(found.folder, over).job
    # Nobody is left who knows its exit code; what it printed is whole, so it was done.
    assert job.status == "done" and job.result == {"folder": "x"}


def test_stop_is_a_ctrl_c_even_where_the_dashboard_ignores_it(monkeypatch):
    caught = SLEEPER.replace(
        "time.sleep(60)", "\ntry:\n  time.sleep(60)\nexcept KeyboardInterrupt:\n  sys.exit('saved')"
    )
    command(monkeypatch, caught)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell has it for what runs in the background
    try:
        found = until(jobs.start("backtest", []).folder, asleep)
    finally:
        signal.signal(signal.SIGINT, before)
    jobs.stop(found.folder)
    done = until(found.folder, over)
    assert done.log() == "saved" and done.stopping
    assert done.job.status == "failed" and done.job.error.startswith("Stopped on request")
    jobs.stop(found.folder)  # nothing to stop any more


def test_a_second_stop_ends_what_does_not_listen(monkeypatch):
    command(
        monkeypatch,
        SLEEPER.replace(
            "time.sleep(60)",
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\nfile.write_text('[0.5, \"\"]')\ntime.sleep(60)",
        ),
    )
    found = until(jobs.start("backtest", []).folder, lambda each: each.job.fraction == 0.5)
    jobs.stop(found.folder)
    time.sleep(0.3)
    assert jobs.read(found.folder).running
    jobs.stop(found.folder)
    assert until(found.folder, over).job.error.startswith("Stopped on request")


def test_a_job_outlives_the_process_that_started_it(home):
    script = (
        "import sys; from portfolio_sdpo_app.dashboard.data import jobs; "
        f"jobs.COMMAND = (sys.executable, '-c', {SLEEPER!r}); print(jobs.start('backtest', []).folder, flush=True); "
        "import time; time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as dashboard:
        folder = Path(dashboard.stdout.readline().strip())
        until(folder, asleep)
        dashboard.kill()
    [found] = jobs.list_jobs()
    assert found.folder == folder and found.running
    os.kill(child_of(found), signal.SIGKILL)
    assert "SIGKILL" in until(folder, over).job.error  # and the exit code is known all the same


def test_one_retrain_at_a_time_and_a_few_jobs(monkeypatch):
    command(monkeypatch, SLEEPER)
    jobs.start("retrain", [])
    with pytest.raises(RetrainBusyError, match="still running: wait for it to finish"):
        jobs.start("retrain", [])
    for _ in range(jobs.MAX_RUNNING - 1):
        jobs.start("backtest", [])
    with pytest.raises(RunError, match="4 jobs are running already"):
        jobs.start("backtest", [])


def test_what_is_damaged_is_left_out_and_what_ended_can_be_forgotten(monkeypatch, home):
    command(monkeypatch, "print('{}')")
    found = until(jobs.start("backtest", []).folder, over)
    (home / "jobs" / "20200101-000000-00000000").mkdir()
    (home / "jobs" / "notes").mkdir()
    assert [each.folder for each in jobs.list_jobs()] == [found.folder]
    with pytest.raises(NotRegisteredError, match="job 20200101-000000-00000000 was not found"):
        jobs.read(home / "jobs" / "20200101-000000-00000000")
    jobs.forget(found.folder)
    assert jobs.list_jobs() == [] and not found.folder.exists()


def test_a_running_job_is_not_forgotten(monkeypatch):
    command(monkeypatch, SLEEPER)
    found = until(jobs.start("backtest", []).folder, asleep)
    jobs.forget(found.folder)
    assert jobs.read(found.folder).running


def test_where_nothing_can_be_written_the_job_does_not_begin(home):
    (home / "jobs").write_text("a file")
    with pytest.raises(RunError, match=r"cannot be started in .*: free some space"):
        jobs.start("backtest", [])


def test_a_sign_of_life_dies_with_its_process(tmp_path):
    sign = tmp_path / "sign"
    assert not is_alive(sign)
    with mark_alive(sign):
        assert is_alive(sign)
    assert not sign.exists()
    script = (
        "import sys, time; from pathlib import Path; from portfolio_sdpo.common.files import mark_alive\n"
        "with mark_alive(Path(sys.argv[1])):\n  print(1, flush=True)\n  time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(sign)], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert is_alive(sign)
        process.kill()
        process.wait()
    assert sign.exists() and not is_alive(sign)
    with mark_alive(tmp_path / "no" / "folder"):  # a display: where it cannot be given, work goes on
        pass


def test_the_command_line_says_how_far_it_is(tmp_path, monkeypatch):
    """The real one, to the end: benchmarks of a few weeks."""
    arguments = ["--algo", "none", "--strategies", "equal-weight,cash", "--start", "2019-01-02", "--end", "2019-02-15"]
    shares = []

    def watched(each):
        shares.append(each.job.fraction)
        return over(each)

    found = until(jobs.start("backtest", arguments).folder, watched, 60)
    assert found.job.status == "done", found
    folder = Path(found.job.result["folder"])
    assert folder.parent == tmp_path / "backtests" and set(found.job.result) == {"folder", "report"}
    assert json.loads((folder / "config.json").read_text())["settings"]["strategies"] == ["equal-weight", "cash"]
    # 31 sessions are traded, and there is a decision at the last close.
    assert json.loads((found.folder / "progress.json").read_text()) == [1.0, "cash: 32 of 32"]
    assert shares == sorted(shares)
