"""What the runner of grids costs, and what a second core brings. Prints one JSON object.

python benchmarks/runner.py [--runs 8] [--iterations 1000] [--jobs 2]

The same grid of independent runs (SDPO on a small noisy CMDP, one per seed) is made with one job, which is this
process, and with `--jobs` worker processes, each time from nothing, with everything that `experiment run` does around
runs: a registry, a board, checkpoints. `speedup` is by the wall clock, starting the workers included. `overhead` is
what the runner itself takes with one job, as a share of the time inside the runs; telling the board how far a run is
counts as the runner's. Other work on the machine counts against the speedup, so run this alone.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.study import CmdpRun, list_cmdp_runs, train_cmdp
from portfolio_sdpo.experiments.engine.grid import Stage, run_grid
from portfolio_sdpo.experiments.paper.smoke import CMDP_CVAR
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.experiment_runs import RunRecorder
from portfolio_sdpo.rl.progress import Board

TARGETS = {"speedup": 1.8, "overhead": 0.02}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=8, help="a multiple of the jobs, or one of them waits at the end")
    parser.add_argument("--iterations", type=int, default=1000, help="of each run")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    grid = CMDP_CVAR.with_changes(algorithms=("sdpo",), seeds=tuple(range(options.runs)), iterations=options.iterations)
    made(grid.with_changes(seeds=(0,), iterations=20), 1)  # imports, caches
    alone, inside, tables = made(grid, 1)
    together, _, same = made(grid, options.jobs)
    result = {
        "benchmark": "runner",
        "cores": os.cpu_count(),
        "targets": TARGETS,
        "runs": options.runs,
        "seconds_per_run": round(inside / options.runs, 2),
        "seconds_one_job": round(alone, 2),
        f"seconds_{options.jobs}_jobs": round(together, 2),
        "speedup": round(alone / together, 3),
        "overhead": round(alone / inside - 1, 5),
        "same_bytes": tables == same,
    }
    print(json.dumps(result, indent=2))


def made(grid: CmdpExperiment, jobs: int) -> tuple[float, float, dict[str, bytes]]:
    """Seconds of the whole grid, those inside its runs, and the logs."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / grid.name
        begun = time.perf_counter()
        with Registry.open(str(Path(folder) / "registry.db")) as registry, RunRecorder(registry, grid.name) as observer:
            outcomes = run_grid(
                [Stage(list_cmdp_runs(grid, root))],
                timed,
                Board(grid.problem.constraints),
                root,
                jobs=jobs,
                observer=observer,
            )
        seconds = time.perf_counter() - begun
        assert all(outcome.status == "finished" for outcome in outcomes), outcomes
        inside = sum(outcome.results["seconds"] for outcome in outcomes)
        return seconds, inside, {path.parent.name: path.read_bytes() for path in root.glob("*/metrics.parquet")}


def timed(case: CmdpRun, watch: Any) -> dict[str, float]:
    """Train; the seconds of it, without those that the board takes."""
    told = 0.0

    def watched(row: Any) -> None:
        nonlocal told
        begun = time.perf_counter()
        watch(row)
        told += time.perf_counter() - begun

    begun = time.perf_counter()
    train_cmdp(case, watched)
    return {"seconds": time.perf_counter() - begun - told}


if __name__ == "__main__":
    main()
