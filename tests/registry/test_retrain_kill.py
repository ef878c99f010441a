"""kill -9 of `portfolio-sdpo retrain` at twenty moments of its run: the champion serves on, and the next run works.

Every retrain is a process of its own that runs the command line; they are forked from one that has done the imports,
which take ten times as long as a retrain of this size. No test may depend on how long anything takes: the moments are
shares of what a run takes here and now, and whether one was killed before, in or after its work, the same must hold.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from portfolio_sdpo.registry import Registry

KILLS = 20
FORKS = """
import contextlib, io, json, os, random, shutil, signal, sys, time
from pathlib import Path
from portfolio_sdpo import cli
from portfolio_sdpo.prices.ingest import import_snapshot
from portfolio_sdpo.prices.samples import load_sample

root, kills = Path(sys.argv[1]), int(sys.argv[2])
config = root / "tiny.toml"
config.write_text('''
history = 60
paths = 8
first = 6
further = 2
limit = {horizon = 5, alpha = 0.2, bound = -0.3}
learner = {kind = "analytic", hidden = [4, 4], learning_rate = 0.1}
''')
frame = load_sample("sample").frame.iloc[-200:, :3].rename_axis("Date")


def command(home, *more):
    os.environ["PORTFOLIO_SDPO_HOME"] = str(home)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.build_app()(["retrain", "--config", str(config), "--holdout", "20", *more])
        except SystemExit as end:
            return end.code or 0
    return 0


def fork(home, *more):
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = command(home, *more)
        finally:
            os._exit(code)
    return pid


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# A champion that knows all but the last sessions, and prices that an update finds.
base = root / "base"
os.environ["PORTFOLIO_SDPO_HOME"] = str(base)
frame.iloc[:-3].to_csv(root / "mine.csv")
import_snapshot(root / "mine.csv", "mine", calendar=None)
assert command(base, "--snapshot", "mine") == 0
frame.to_csv(root / "mine.csv")

# Half of them go on from the champion, half start from scratch.
kinds = [("--update",), ("--update", "--seeds", "1")]
took = []
for number, kind in enumerate(kinds):
    home = root / f"timed-{number}"
    shutil.copytree(base, home)
    begun = time.monotonic()
    assert ended(fork(home, *kind)) in (0, 3)
    took.append(time.monotonic() - begun)
rng = random.Random(0)
for number in range(kills):
    kind = kinds[number % 2]
    home = root / f"killed-{number}"
    for _ in range(5):
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(base, home)
        begun, pid = time.monotonic(), fork(home, *kind)
        moment = begun + took[number % 2] * (number + rng.random()) / kills
        while time.monotonic() < moment and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)
        killed = ended(pid)
        if killed == -9:
            break
        took[number % 2] = time.monotonic() - begun  # it was faster than the one that was timed
    after = root / f"after-{number}"
    shutil.copytree(home, after)
    print(json.dumps([killed, ended(fork(home, *kind)), ended(fork(home, *kind))]), flush=True)
"""


def test_twenty_kills(tmp_path: Path):
    command = [sys.executable, "-W", "error", "-c", FORKS, str(tmp_path), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with Registry.open(str(tmp_path / "base" / "registry.db")) as registry:
        champion = registry.champion().model_id
    codes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(codes) == KILLS and sum(killed == -9 for killed, _, _ in codes) > KILLS // 2
    for number, (killed, then, again) in enumerate(codes):
        assert killed in (-9, 0, 3) and then == again and then in (0, 3), (number, codes[number], done.stderr)
        with Registry.open(str(tmp_path / f"after-{number}" / "registry.db")) as registry:
            standing = registry.champion()
            # The old one, or the new one if the kill came after the last step: never nobody, never half of one.
            assert standing.model_id == champion or standing.by.startswith("retrain ")
            assert registry.load_agent(standing.model_id).learner is not None
            check_sound(registry)
        with Registry.open(str(tmp_path / f"killed-{number}" / "registry.db")) as registry:
            check_sound(registry)
            assert registry.runs(status="running") == []
            if then == 0:
                assert str(registry.model(registry.champion().model_id).as_of) == "2021-10-14"
            # What the killed one had registered is used and not made twice.
            assert len(registry.models()) == 2 and len(registry.promotions()) == 2 - (then == 3)


def check_sound(registry: Registry) -> None:
    assert registry.verify_promotions().sound and registry.verify_audit().sound and registry.damaged_models() == {}
