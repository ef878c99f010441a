"""A real Ray cluster of two nodes on this machine: the same bytes as here, and a node that dies in the middle.

It takes a while to start, so there are few tests and each does much.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import portfolio_sdpo
from portfolio_sdpo.common import plugins
from portfolio_sdpo.common.files import data_directory
from portfolio_sdpo.errors import MissingExtraError, RunError
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.study import CmdpRun, list_cmdp_runs, run_cmdp, train_cmdp
from portfolio_sdpo.experiments.cmdp.summary import summarise_cmdp
from portfolio_sdpo.experiments.engine import ray_cluster
from portfolio_sdpo.experiments.engine.grid import Stage, run_grid
from portfolio_sdpo.experiments.engine.parallel import SINGLE, UNDER_WAY, LostWorkerError
from portfolio_sdpo.experiments.engine.ray_cluster import Ray, check_nodes, read_seal
from portfolio_sdpo.rl.progress import Board

from .grid_files import contents, lives


class Said(Board):
    """Remembers what was retried, and why."""

    def __init__(self) -> None:
        super().__init__(())
        self.retried: list[str] = []

    def again(self, name: str, why: str) -> None:
        self.retried.append(f"{name}: {why}")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head with one core; nothing of it is left at the end."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # or its workers wait for everything else on a busy machine
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        yield made
    finally:
        made.shutdown()


def test_a_node_dies_in_the_middle_and_the_table_is_that_of_one_machine(
    cluster: Any, tiny: CmdpExperiment, tiny_run: tuple[Path, Any], tmp_path: Path
):
    second = cluster.add_node(num_cpus=1)
    root = tmp_path / "tiny"

    def make(case: CmdpRun, watch: Any) -> Any:
        """Wait in the middle until a worker is dead."""

        def act(row: Any) -> None:
            watch(row)
            if row["iteration"] == 2:
                (case.root / f"{os.getpid()}.waits").touch()
                while not (case.root / "killed").exists():
                    time.sleep(0.02)

        return train_cmdp(case, act)

    def kill() -> None:
        while len(waiting := [int(path.stem) for path in root.glob("*.waits")]) < 2:
            time.sleep(0.02)  # until both nodes are at it, each having one core
        cluster.remove_node(second, allow_graceful=False)
        while all(map(lives, waiting)):  # a worker notices after a while that its node is gone
            time.sleep(0.02)
        (root / "killed").touch()

    killer, board = threading.Thread(target=kill, daemon=True), Said()
    killer.start()
    grid = list_cmdp_runs(tiny, root)
    outcomes = run_grid([Stage(grid)], make, board, root, jobs=None, parallel=Ray(cluster.address))
    killer.join()
    assert [outcome.status for outcome in outcomes] == ["finished"] * 4
    (sentence,) = board.retried
    assert "its worker was lost (" in sentence and sentence.endswith("), retry 1 of 2")
    assert not (root / UNDER_WAY).exists()
    # Nothing is left to do but the references; then the tables are the same, to the last bit.
    assert {outcome.status for outcome in run_cmdp(tiny, root=root)} == {"skipped"}
    assert contents(root) == contents(tiny_run[0]) and len(contents(root)) == 4 * 6
    there, here = (json.dumps(summarise_cmdp(tiny, root=each).to_json()) for each in (root, tiny_run[0]))
    assert there == here


def test_what_a_worker_is_like_and_what_becomes_of_its_run_if_it_dies(
    cluster: Any, tiny: CmdpExperiment, tiny_run: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))

    def make(case: CmdpRun, watch: Any) -> Any:
        """Die in the middle of the first attempt at SDPO, and in every one at PPO."""
        import torch

        tried = case.root / f"{case.name}-tried"
        if case.label == "ppo":
            os.kill(os.getpid(), signal.SIGKILL)

        def kill_once(row: Any) -> None:
            watch(row)
            if row["iteration"] == 2 and not tried.exists():
                tried.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        train_cmdp(case, kill_once)
        variables = {name: os.environ[name] for name in SINGLE}
        return {"threads": torch.get_num_threads(), "variables": variables, "home": data_directory()}

    few, root, board = tiny.with_changes(seeds=(0,)), tmp_path / "tiny", Said()
    failed, finished = run_grid(
        [Stage(list_cmdp_runs(few, root))], make, board, root, jobs=2, retries=1, parallel=Ray(cluster.address)
    )
    assert (failed.run, failed.status, finished.status) == ("ppo-11-0", "failed", "finished")
    assert failed.message == (
        "its worker was lost (it was killed, or its node was lost), 2 times: run the same command again with fewer "
        "--jobs; it resumes from its checkpoint."
    )
    assert sorted(line.partition(":")[0] for line in board.retried) == ["ppo-11-0", "sdpo-11-0"]
    assert finished.results == {"threads": 1, "variables": dict.fromkeys(SINGLE, "1"), "home": tmp_path / "home"}
    # Only what is missing is made by the next command, wherever that is given.
    again = run_cmdp(few, root=root)
    assert [outcome.status for outcome in again] == ["finished", "skipped"]
    assert contents(root) == {name: found for name, found in contents(tiny_run[0]).items() if "-11-0/" in name}
    assert not (root / UNDER_WAY).exists() and not list(root.glob("*/failure.json"))


class TestRayWithoutACluster:
    def test_a_missing_extra_is_one_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(plugins, "find_spec", lambda name: None)
        with pytest.raises(
            MissingExtraError, match=r"needs the package ray: pip install 'portfolio_sdpo\[cluster\]'\.$"
        ):
            Ray().open(tmp_path).__enter__()
        assert not list(tmp_path.iterdir())

    def test_no_cluster_is_one_sentence(self):
        class Nowhere:
            @staticmethod
            def init(**_):
                raise ConnectionError("Could not find any running Ray instance.\nPlease specify one")

        with pytest.raises(
            RunError, match=r"no Ray cluster at 'auto' \(Could not find any running Ray instance\): start"
        ):
            ray_cluster._connect(Nowhere(), "auto")

    def test_a_cluster_without_nodes_is_one_sentence(self, tmp_path: Path):
        class Empty:
            @staticmethod
            def nodes():
                return [{"Alive": False, "Resources": {"CPU": 2.0}}, {"Alive": True, "Resources": {}}]

        with pytest.raises(RunError, match="has no node with a free core: join one"):
            check_nodes(Empty(), tmp_path / "seal")

    def test_a_node_tells_what_it_sees(self, tmp_path: Path):
        assert read_seal(tmp_path / "seal") == (None, portfolio_sdpo.__version__)
        (tmp_path / "seal").write_text("x")
        assert read_seal(tmp_path / "seal") == ("x", portfolio_sdpo.__version__)

    def test_a_node_that_joined_later_is_asked_again(self, tmp_path: Path):
        seal = tmp_path / "cmdp-cvar" / UNDER_WAY / "grid" / "seal"
        with pytest.raises(LostWorkerError, match=r"^node \S+ does not see .*/cmdp-cvar$"):
            ray_cluster._call_checked(os.getpid, seal, portfolio_sdpo.__version__)
        seal.parent.mkdir(parents=True)
        seal.write_text("grid")
        assert ray_cluster._call_checked(os.getpid, seal, portfolio_sdpo.__version__) == os.getpid()
        with pytest.raises(LostWorkerError, match=r"has portfolio_sdpo \S+ and not 9\.9$"):
            ray_cluster._call_checked(os.getpid, seal, "9.9")
