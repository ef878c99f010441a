"""Runs on a Ray cluster (`ray start`), one task each, which Ray places on any node with a free core.

Results are files, so all nodes must see the experiment's folder, under the same path, and have the same version of this
package. Both are checked on every node before anything runs, and again before every run, for nodes that joined later.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import portfolio_sdpo
from portfolio_sdpo.common.files import data_directory
from portfolio_sdpo.common.plugins import require_extra
from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.engine.parallel import (
    PATIENCE,
    SINGLE,
    GridCancelledError,
    LostWorkerError,
    Parallel,
    T,
    Workers,
    shared_folder,
)


@dataclass(frozen=True)
class Ray(Parallel):
    """The cluster at this address: `auto` for the one that this machine is part of, or HOST:PORT of its head."""

    address: str = "auto"

    @contextmanager
    def open(self, root: Path, jobs: int | None = None, cores: int = 1) -> Iterator[Workers]:
        ray = _ray()
        ours = not ray.is_initialized()
        if ours:
            _connect(ray, self.address)
        try:
            with shared_folder(root.resolve()) as folder:
                seal = folder / "seal"
                seal.write_text(folder.name)
                check_nodes(ray, seal)
                room = max(1, int(ray.cluster_resources().get("CPU", 1)) // cores)
                tasks = _Tasks(ray, room if jobs is None else jobs, folder, cores, seal)
                try:
                    yield tasks
                finally:
                    tasks.close()
        finally:
            if ours:
                ray.shutdown()


def _ray() -> Any:
    require_extra("A run on a cluster", "ray", "cluster")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return import_module("ray")


def _connect(ray: Any, address: str) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise RunError(
            f"there is no Ray cluster at {address!r} ({reason}): start one with `ray start --head` and join it from "
            "the other machines, or name another with --ray-address."
        ) from None


def check_nodes(ray: Any, seal: Path) -> None:
    """A `RunError` that names the node, if one does not see the file or has another version of this package."""
    strategy = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    asked = {}
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU"):
            task = ray.remote(num_cpus=0, max_retries=0)(read_seal)
            # Not the environment of runs, which would start one more process.
            task = task.options(scheduling_strategy=strategy(node["NodeID"], soft=False))
            asked[task.remote(seal)] = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
    if not asked:
        raise RunError("the Ray cluster has no node with a free core: join one with `ray start --address HOST:PORT`.")
    for answer, name in asked.items():
        try:
            content, version = ray.get(answer, timeout=PATIENCE)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1].rstrip(".")
            raise RunError(
                f"node {name} cannot make runs ({reason}): install portfolio_sdpo {portfolio_sdpo.__version__} there, "
                "or take it from the cluster."
            ) from None
        if content != seal.parent.name:
            raise RunError(
                f"node {name} does not see {_folder(seal)}: set PORTFOLIO_SDPO_HOME to a folder on a file system "
                "that all nodes share."
            )
        if version != portfolio_sdpo.__version__:
            raise RunError(
                f"node {name} has portfolio_sdpo {version}, and this machine has {portfolio_sdpo.__version__}: install "
                "the same version everywhere."
            )


def read_seal(seal: Path) -> tuple[str | None, str]:
    """The content of the file as this node reads it, None if it cannot, and its version of this package."""
    content = None
    with suppress(OSError):
        content = seal.read_text()
    return content, portfolio_sdpo.__version__


@dataclass
class _Tasks(Workers):
    """One Ray task for every run; a process may live a little longer than its node."""

    ray: Any
    jobs: int
    folder: Path
    cores: int
    seal: Path
    _under_way: set[Any] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def __post_init__(self) -> None:
        # Variables of this process do not reach the nodes. Ray's own retries have no limit where memory ran out.
        self.locks = self.folder.parent
        environment = {"env_vars": {**SINGLE, "PORTFOLIO_SDPO_HOME": str(data_directory().resolve())}}
        self._task = self.ray.remote(num_cpus=self.cores, max_retries=0, runtime_env=environment)(_call_checked)

    def execute(self, call: Callable[[], T]) -> T:
        errors = self.ray.exceptions
        with self._lock:
            if self._closed:
                raise GridCancelledError
            answer = self._task.remote(call, self.seal, portfolio_sdpo.__version__)
            self._under_way.add(answer)
        try:
            result: T = self.ray.get(answer)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            if self._closed:
                raise GridCancelledError from None
            raise LostWorkerError(f"its worker was lost ({_summarise_error(error)})") from None
        finally:
            with self._lock:
                self._under_way.discard(answer)
        return result

    def close(self) -> None:
        """Cancel what is running; it has its checkpoint."""
        with self._lock:
            self._closed = True
            for answer in self._under_way:
                self.ray.cancel(answer, force=True)


def _call_checked(call: Callable[[], T], seal: Path, version: str) -> T:
    """The call, on a node that sees the experiment's folder and has the same version; it may have joined later."""
    content, ours = read_seal(seal)
    if content != seal.parent.name:
        raise LostWorkerError(f"node {socket.gethostname()} does not see {_folder(seal)}")
    if ours != version:
        raise LostWorkerError(f"node {socket.gethostname()} has portfolio_sdpo {ours} and not {version}")
    return call()


def _folder(seal: Path) -> Path:
    """The experiment's."""
    return seal.parents[2]


def _summarise_error(error: Exception) -> str:
    """One line for an error that Ray explains in many."""
    words = {
        "OutOfMemoryError": "its node ran out of memory",
        "NodeDiedError": "its node was lost",
        "WorkerCrashedError": "it was killed, or its node was lost",
    }
    name = type(error).__name__
    return words.get(name, f"{name}: {str(error).strip().partition(chr(10))[0].rstrip('.')}")
