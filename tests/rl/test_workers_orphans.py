"""A run that ends early, killed or interrupted, leaves no worker process behind and resumes to the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# A run in a session of its own, so that all that it leaves behind is found; at the gate its workers stop in mid-batch.
RUN = """
import sys
from pathlib import Path
from test_workers_run import GATE, Gated, settings
from portfolio_sdpo.rl.trainer import Trainer, worker_collector

def watch(row):
    if row["iteration"] == 2:
        GATE.touch()
        print("under way", flush=True)

if __name__ == "__main__":
    env = worker_collector(settings(), Gated, workers=2)  # and nobody closes it
    Trainer(settings(), env, Path(sys.argv[1])).run(watch)
"""
PARTS = """
import time
from pathlib import Path
from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms import ActorSettings, Problem, PpoSettings
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.rl.trainer import TrainSettings

CMDP = random_cmdp(6, 3, seed=0, noise_scale=1.0, horizon=4, costs=("pain",))

GATE = Path(__file__).with_name("gate")

class Gated(RandomCmdpVectorEnv):
    def __init__(self, count):
        super().__init__(CMDP, count)

    def step(self, actions):
        while GATE.exists():
            time.sleep(0.01)
        return super().step(actions)

def settings():
    return TrainSettings(
        problem=Problem(constraints=(Constraint.from_spec("expectation of pain <= 3"),)),
        algorithm=PpoSettings(
            actor=ActorSettings(hidden=(4,)),
            critic=CriticSettings(kind="mean", hidden=(4,), warm_up=1, epochs=1, minibatches=1),
            epochs=1,
        ),
        iterations=8, steps=6, count=5, lane=2, overlap=True, checkpoint_every=2, tensorboard=False,
    )
"""


def in_session(session):
    """Processes of a session that are not yet over."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                rest = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(rest[3]) == session and rest[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "test_workers_run.py").write_text(PARTS)
    (folder / "run.py").write_text(RUN)
    return folder


@pytest.mark.parametrize("end", ["killed", "interrupted"])
def test_a_run_that_ends_early_leaves_nobody_behind_and_goes_on(scripts, monkeypatch, tmp_path, end):
    """By SIGKILL, or by Ctrl-C for the whole group, past a collector that nobody closes; resumed, the same bytes."""
    run = subprocess.Popen(
        [sys.executable, str(scripts / "run.py"), str(tmp_path / "early")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Where the tests themselves run in the background, processes ignore Ctrl-C unless told otherwise.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        assert run.stdout is not None and run.stdout.readline() == "under way\n"
        assert len(in_session(run.pid)) >= 4  # it, the fork server, two workers
        if end == "killed":
            run.kill()
        if end == "interrupted":
            os.killpg(run.pid, signal.SIGINT)
            (scripts / "gate").unlink()
        _, errors = run.communicate(timeout=120)
        assert (run.returncode == -signal.SIGKILL) == (end == "killed")
        # Workers do not complain: the only traceback is the parent's own.
        assert errors.count("Traceback") == errors.endswith("\nKeyboardInterrupt\n") == (end == "interrupted")
        deadline = time.monotonic() + 60
        while in_session(run.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert in_session(run.pid) == []
    finally:
        for pid in in_session(run.pid):
            os.kill(pid, signal.SIGKILL)
        run.communicate()
        (scripts / "gate").unlink(missing_ok=True)

    monkeypatch.syspath_prepend(scripts)
    from test_workers_run import Gated, settings

    from portfolio_sdpo.rl.trainer import Trainer, worker_collector

    for name in ("early", "whole"):
        with worker_collector(settings(), Gated, workers=0) as env:
            resumed = Trainer(settings(), env, tmp_path / name)
            assert (name == "whole") == (resumed.iteration == 0)
            resumed.run()
    early, whole = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("early", "whole"))
    newest = "checkpoint-0000008.safetensors"
    assert early["metrics.parquet"] == whole["metrics.parquet"] and early[newest] == whole[newest]
