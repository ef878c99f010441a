"""How many files a reader passes on four roads through the code. Prints one JSON object.

python benchmarks/trace.py [--road backtest|iteration|experiment|refresh|all] [--agent learning|default] [--files]

A file counts if one of its functions is entered on the road, in any thread; running a module or a class body does not
count, nor do comprehensions, nor what is called while a module is imported. A call across rooms is a pair of functions,
of which one calls the other and which are in different rooms (folders of `portfolio_sdpo`, and `app.api` and
`app.dashboard`). The roads:

    backtest     `portfolio-sdpo backtest` from a snapshot to the report: one SDPO agent, the shield, two benchmarks
    iteration    one training iteration of SDPO on a random CMDP: collect and update (estimator score, quantile critics)
    experiment   `portfolio-sdpo experiment run safety-...` up to the environment's first step
    refresh      `portfolio-sdpo serve` with a champion, from new prices to the new answer, in the thread that makes it

Each is traced in a process of its own, with settings so small that it takes seconds. `--files` lists the files in the
order in which they are entered, with the first function entered in each. `--agent default` takes the preset `default`,
whose policy is trained already, in the place of an agent that learns. `files` leaves out rooms that only lead onto
the road: the command line, and for an experiment the registry that keeps its books; `aside` says how many they have.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import contextlib
import inspect
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

TARGETS = {"backtest": 30, "iteration": 14, "experiment": 15, "refresh": 28}
"""Files at most."""
ASIDE = {"backtest": ("cli",), "iteration": (), "experiment": ("cli", "registry"), "refresh": ()}
"""Rooms that only lead onto the road."""
LEARNING = """
history = 60
paths = 8
first = 6
further = 2
[limit]
horizon = 5
alpha = 0.2
bound = -0.3
[learner]
kind = "analytic"
hidden = [4, 4]
learning_rate = 0.1
"""
AGENTS = {"learning": LEARNING, "default": ""}
"""Settings of the agent that is traced, beside those of the preset `default`."""


class Tracer:
    """Notes which functions of the package are entered, from `start` to `stop`, in every thread."""

    def __init__(self) -> None:
        import portfolio_sdpo
        import portfolio_sdpo_app

        roots = {"portfolio_sdpo": portfolio_sdpo, "app": portfolio_sdpo_app}
        self._roots = {str(Path(package.__path__[0]).resolve()): name for name, package in roots.items()}
        self._names: dict[str, str | None] = {}
        self._importing = threading.local()
        self._lock = threading.Lock()
        self.entries: list[tuple[int, str, str]] = []
        """Thread, file and function, each function once per thread, in the order of entry."""
        self.calls: set[tuple[int, CodeType, CodeType]] = set()
        """Thread, caller and callee, of functions of the package."""
        self._seen: set[tuple[int, CodeType]] = set()
        self.at: Callable[[str, str], None] = lambda file, function: None
        """Called with file and function at every entry; may stop the trace."""

    def start(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def clear(self) -> None:
        """Forget everything up to now."""
        with self._lock:
            self.entries.clear()
            self.calls.clear()
            self._seen.clear()

    def name(self, code: CodeType) -> str | None:
        """The file of a function, as a path below the repository; None if it is not the package's."""
        path = code.co_filename
        if path not in self._names:
            full = str(Path(path).resolve())
            root = next((root for root in self._roots if full.startswith(root + os.sep)), None)
            self._names[path] = root and self._roots[root] + full[len(root) :]
        return self._names[path]

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return"):
            return
        if code.co_name == "_find_and_load" and code.co_filename.startswith("<frozen importlib"):
            self._importing.depth = getattr(self._importing, "depth", 0) + (1 if event == "call" else -1)
        elif self.name(code) is None:
            return
        elif event == "call" and not getattr(self._importing, "depth", 0) and is_function(code):
            self._enter(frame, code)

    def _enter(self, frame: FrameType, code: CodeType) -> None:
        file, thread = self.name(code), threading.get_ident()
        assert file is not None
        with self._lock:
            if (thread, code) not in self._seen:
                self._seen.add((thread, code))
                self.entries.append((thread, file, code.co_qualname))
            caller = frame.f_back
            while caller is not None and not is_function(caller.f_code):
                caller = caller.f_back
            if caller is not None and self.name(caller.f_code) is not None:
                self.calls.add((thread, caller.f_code, code))
        self.at(file, code.co_name)

    def summary(self, road: str, thread: int | None = None) -> dict[str, Any]:
        """Files in the order of entry, and calls across rooms; of one thread, or of all."""
        files: dict[str, str] = {}
        for each, file, function in self.entries:
            if thread in (None, each):
                files.setdefault(file, function)
        aside = {name: sum(room(file) == name for file in files) for name in ASIDE[road]}
        pairs = {(caller, callee) for each, caller, callee in self.calls if thread in (None, each)}
        crossings: dict[str, int] = {}
        for caller, callee in pairs:
            a, b = room(str(self.name(caller))), room(str(self.name(callee)))
            if a != b and a not in aside and b not in aside:
                crossings[f"{a} → {b}"] = crossings.get(f"{a} → {b}", 0) + 1
        return {
            "files": len(files) - sum(aside.values()),
            "aside": aside,
            "calls_across_rooms": sum(crossings.values()),
            "crossings": dict(sorted(crossings.items(), key=lambda item: -item[1])),
            "road": [f"{file}: {function}" for file, function in files.items()],
        }


def is_function(code: CodeType) -> bool:
    """Neither the body of a module or a class nor a comprehension."""
    return bool(code.co_flags & inspect.CO_NEWLOCALS) and code.co_name not in (
        "<listcomp>",
        "<dictcomp>",
        "<setcomp>",
        "<genexpr>",
    )


def room(file: str) -> str:
    """
    >>> room("portfolio_sdpo/risk/barrier.py"), room("portfolio_sdpo/errors.py"), room("app/api/routes/weights.py")
    ('risk', 'errors', 'app.api')
    """
    parts = Path(file).with_suffix("").parts
    return ".".join(parts[:2]) if parts[0] == "app" else parts[1]


def command(*arguments: str) -> None:
    """Run a command in this process."""
    from portfolio_sdpo.cli import main

    sys.argv = ["portfolio-sdpo", *arguments]
    try:
        main()
    except SystemExit as end:
        if end.code not in (0, None):
            raise


def prepare(*arguments: str) -> None:
    """Run a command in another process, which is not traced."""
    subprocess.run([sys.executable, "-m", "portfolio_sdpo", *arguments], check=True, stdout=subprocess.DEVNULL)


def write_agent(home: Path) -> str:
    """The settings of the agent, as a file."""
    path = home / "agent.toml"
    path.write_text(AGENTS[AGENT])
    return str(path)


def trace_backtest(home: Path) -> dict[str, Any]:
    agent = write_agent(home)
    prepare("data", "fetch", "--source", "sample", "--name", "nine")
    tracer = Tracer()
    tracer.start()
    command(
        *("backtest", "--snapshot", "nine", "--algo", "sdpo", "--strategies", "equal-weight,minimum-variance"),
        *("--config", agent, "--start", "2019-01-02", "--end", "2019-03-29", "--shield"),
    )
    tracer.stop()
    return tracer.summary("backtest")


def trace_iteration(home: Path) -> dict[str, Any]:
    from portfolio_sdpo.envs import RandomCmdpVectorEnv, random_cmdp
    from portfolio_sdpo.risk import Constraint, Variance
    from portfolio_sdpo.rl import ActorSettings, Problem, SdpoSettings, Trainer, TrainSettings

    limit = Constraint(signal="reward", measure=Variance(), sense="<=", bound=12.0, eta=2.0)
    settings = TrainSettings(
        problem=Problem(discount=0.99, constraints=(limit,)),
        algorithm=SdpoSettings(actor=ActorSettings(hidden=())),
        iterations=3,
        steps=20,
        tensorboard=False,
    )
    env = RandomCmdpVectorEnv(random_cmdp(states=20, actions=3, seed=1, noise_scale=1.0), num_envs=10)
    tracer = Tracer()

    def watch(row: Any) -> None:
        # The second iteration and no other: what is done once, before the first, is not part of it.
        tracer.start() if row["iteration"] == 0 else tracer.stop()

    Trainer(settings, env, home / "run").run(watch)
    return tracer.summary("iteration")


def trace_experiment(home: Path) -> dict[str, Any]:
    tracer = Tracer()

    def stop_at_first_step(file: str, function: str) -> None:
        if file.startswith("portfolio_sdpo/envs/") and function == "step":
            tracer.stop()
            finish(tracer.summary("experiment"))

    tracer.at = stop_at_first_step
    tracer.start()
    command(
        *("experiment", "run", "safety-b-pointgoal1-short", "--seeds", "0", "--algorithms", "sdpo"),
        *("--iterations", "1", "--jobs", "1"),
    )
    raise SystemExit("trace: the environment was never stepped in this process.")


def trace_refresh(home: Path) -> dict[str, Any]:
    prepare("data", "fetch", "--source", "sample", "--name", "sample")
    prepare("data", "export", "sample", "--out", str(home / "new.csv"))
    rows = (home / "new.csv").read_text().splitlines(keepends=True)
    (home / "old.csv").write_text("".join(rows[:-5]))
    prepare("data", "import", str(home / "old.csv"), "--name", "nine")
    prepare("retrain", "--snapshot", "nine", "--config", write_agent(home), "--holdout", "20")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    tracer = Tracer()
    deciders: list[int] = []

    def note_decider(_: str, function: str) -> None:
        if function == "decide":
            deciders.append(threading.get_ident())

    tracer.at = note_decider

    def bring_new_prices() -> None:
        sys.setprofile(None)
        first = wait_for_answer(port, None)
        tracer.clear()
        deciders.clear()
        prepare("data", "import", str(home / "new.csv"), "--name", "nine")
        wait_for_answer(port, first)
        finish(tracer.summary("refresh", thread=deciders[0]))

    tracer.start()
    threading.Thread(target=bring_new_prices, daemon=True).start()
    command("serve", "--port", str(port), "--max-age-sessions", "1000000")
    raise SystemExit("trace: the service ended before it had a new answer.")


def wait_for_answer(port: int, old: str | None, seconds: float = 120.0) -> str:
    """The day that the served answer is of, once it is another than the old one."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/ready") as answer:
            day = str(json.load(answer)["as_of"])
            if day != old:
                return day
        time.sleep(0.1)
    print("trace: the service has no new answer.", file=sys.stderr)
    os._exit(1)


def finish(result: dict[str, Any]) -> None:
    """Print the result and end the process at once, wherever the road has led."""
    RESULT.write_text(json.dumps(result))
    os._exit(0)


ROADS = {
    "backtest": trace_backtest,
    "iteration": trace_iteration,
    "experiment": trace_experiment,
    "refresh": trace_refresh,
}
RESULT = Path("result.json")
AGENT = "learning"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--road", choices=[*ROADS, "all"], default="all")
    parser.add_argument("--agent", choices=AGENTS, default="learning", help="of a backtest and of the service")
    parser.add_argument("--files", action="store_true", help="list the files")
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.home is not None:
        global RESULT, AGENT
        RESULT, AGENT = arguments.home / "result.json", arguments.agent
        finish(ROADS[arguments.road](arguments.home))
    roads = list(ROADS) if arguments.road == "all" else [arguments.road]
    results = {name: trace(name, arguments.agent) for name in roads}
    if not arguments.files:
        for result in results.values():
            result.pop("road", None)
    print(json.dumps({"targets": {name: TARGETS[name] for name in roads}, **results}, indent=2, ensure_ascii=False))


def trace(road: str, agent: str) -> dict[str, Any]:
    """Trace a road in a process and a data directory of its own."""
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"PORTFOLIO_SDPO_HOME": home}
        environment.pop("PORTFOLIO_SDPO_REGISTRY", None)
        asked = [sys.executable, __file__, "--road", road, "--agent", agent, "--home", home]
        done = subprocess.run(asked, env=environment, cwd=home, capture_output=True, text=True, check=False)
        result = Path(home, "result.json")
        if not result.exists():
            raise SystemExit(f"trace: the road {road!r} did not reach its end.\n{done.stderr[-3000:]}")
        found: dict[str, Any] = json.loads(result.read_text())
        return found


if __name__ == "__main__":
    main()
