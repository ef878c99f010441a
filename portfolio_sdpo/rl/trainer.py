"""The training loop: collect, update, log, checkpoint; a killed run resumes to the same bytes.

With `overlap`, batch k + 1 is collected while update k is made from batch k. θ_k is the policy before update k:

    batch                0     1     2     …    k
    collected by        θ_0   θ_0   θ_1    …   θ_{k−1}
    from it comes       θ_1   θ_2   θ_3    …   θ_{k+1}

A batch is one update older than it would be otherwise; its log-probabilities are those of the policy that acted, so
PPO's ratios and `kl` are taken against that one (CPO, PCPO, PD-CVaR and PD-VAR, which do without ratios to it, take the
batch as if the newest policy had acted). A checkpoint after n updates holds θ_n and θ_{n−1}, which collects batch n.
"""

from __future__ import annotations

import copy
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from gymnasium.vector import VectorEnv
from pydantic import Field, model_validator

import portfolio_sdpo
from portfolio_sdpo.common.files import is_alive, mark_alive
from portfolio_sdpo.errors import CheckpointError, DivergenceError, RunError, SettingsError
from portfolio_sdpo.nn.networks import Policy
from portfolio_sdpo.rl import checkpoint, metrics
from portfolio_sdpo.rl.algorithms import AnySettings, Problem, build
from portfolio_sdpo.rl.algorithms.base import Algorithm
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Collector, Experience, Purpose, Rollout, stream, torch_generator
from portfolio_sdpo.rl.workers import MakeEnv, WorkerCollector
from portfolio_sdpo.settings import Settings

ALIVE = ".alive"
"""In a run folder, the lock that says whether somebody is training there (`files.lives`)."""
Probe = Callable[[Policy, int], dict[str, float]]
"""Looks at the policy of an iteration from outside, for instance on fresh episodes; its figures join the log."""
Gauge = Callable[[Rollout, int], dict[str, float]]
"""Reads figures off the rollout of an iteration that no algorithm needs; they join the log."""
Watcher = Callable[[LogRow], bool | None]
"""Is shown every row of the log as it is made, with `steps_per_second` added; by returning True it ends the run."""


class TrainSettings(Settings):
    """One training run, completely: with the environment, it determines every byte of the result.

    >>> TrainSettings(problem=Problem(discount=0.9), algorithm={"kind": "ppo"}, iterations=3, steps=10).algorithm.kind
    'ppo'
    """

    problem: Problem
    algorithm: AnySettings
    iterations: int = Field(ge=1)
    steps: int = Field(ge=1)
    """Steps of every sub-environment per iteration, each iteration beginning with a reset."""
    seed: int = Field(default=0, ge=0)
    count: int = Field(default=0, ge=0)
    """Sub-environments that step in lanes (`rl.workers`); 0 where one vector environment is given."""
    lane: int = Field(default=0, ge=0)
    """Sub-environments that step in lockstep in one lane."""
    overlap: bool = False
    """Whether the next batch is collected while an update is made, and so by the policy before that update."""
    start: Path | None = None
    """A checkpoint whose policy is the (feasible) start; None starts from the policy head's initial action."""
    environment: str = ""
    """Name and content of the environment, for the record."""
    checkpoint_every: int = Field(default=10, ge=1)
    tensorboard: bool = True

    added_later: ClassVar[frozenset[str]] = frozenset({"count", "lane", "overlap"})

    @model_validator(mode="after")
    def _lanes(self) -> Self:
        if bool(self.lane) != bool(self.count) or self.lane > self.count:
            raise ValueError(f"count and lane: give both or none, lane at most count (got {self.count}, {self.lane})")
        return self

    def fingerprint(self, start_digest: str) -> str:
        """Version, content of the start, and every setting on which the result depends."""
        # A field that was added later counts only where it is used, so that runs begun before it can be resumed.
        ignored = {"start": True, "checkpoint_every": True, "tensorboard": True}
        settings = self.model_dump_json(exclude=ignored | self.find_unused_additions())
        return checkpoint.fingerprint([portfolio_sdpo.__version__, settings, start_digest])


def start_digest(settings: TrainSettings, folder: Path) -> str:
    """A name for the content of the run's start, empty if it has none; of a file that is gone, as the folder has it."""
    config = folder / "config.json"
    if settings.start is None:
        return ""
    if not settings.start.exists() and config.exists():
        return str(metrics.read_config(config).get("start_digest", ""))
    return checkpoint.content_digest(settings.start)


def worker_collector(settings: TrainSettings, make_env: MakeEnv, workers: int) -> WorkerCollector:
    """What collects the batches of such a run in so many processes; their number does not change the result.

    >>> # with worker_collector(settings, make_env, workers=2) as collector:
    >>> #     Trainer(settings, collector, folder).run()
    """
    if not settings.count:
        raise SettingsError("TrainSettings.count: worker processes collect in lanes, so give count and lane.")
    signals = settings.problem.signals()
    return WorkerCollector(make_env, settings.count, settings.lane, workers, signals, settings.steps, settings.seed)


class Trainer:
    """Trains one algorithm in one vector environment, or on what a collector brings, in one run folder.

    >>> # trainer = Trainer(settings, env, folder); trainer.run()

    The folder holds `config.json` (all settings, version, fingerprint), `metrics.parquet` (a row per iteration),
    `checkpoint-*.safetensors`, and TensorBoard's events. Run again with the same settings it continues where it was.
    """

    def __init__(
        self,
        settings: TrainSettings,
        env: VectorEnv[Any, Any, Any] | Experience,
        folder: Path,
        probe: Probe | None = None,
        gauge: Gauge | None = None,
    ) -> None:
        self.settings = settings
        self.folder = folder
        self.probe = probe
        self.gauge = gauge
        self.collector = self._collector(env)
        self.algorithm = self._build()
        self.iteration = 0
        self._acting: Policy | None = None
        self._begun: int | None = None
        self.rows: list[LogRow] = []
        self._start_digest = start_digest(settings, folder)
        self.run_id = settings.fingerprint(self._start_digest)
        self._open()

    def _collector(self, env: VectorEnv[Any, Any, Any] | Experience) -> Experience:
        settings = self.settings
        layout = (settings.count, settings.lane)
        if isinstance(env, VectorEnv):
            if any(layout):
                raise SettingsError("TrainSettings.count: lanes need a worker_collector(), not a vector environment.")
            return Collector(env, settings.problem.signals(), settings.steps, settings.seed)
        asked = [settings.problem.signals(), settings.steps, settings.seed, layout]
        if [env.signals, env.steps, env.seed, env.layout] != asked:
            raise SettingsError(
                "the collector has other signals, steps, seed or lanes than the run's settings: make it with "
                "worker_collector(settings, ...)."
            )
        return env

    def _build(self) -> Algorithm:
        settings = self.settings
        with torch.random.fork_rng():
            # Layers initialise themselves from torch's global generator, and only there is it used.
            seed = stream(settings.seed, 0, Purpose.INITIALISE)
            torch.manual_seed(torch_generator(seed).initial_seed())
            collector = self.collector
            return build(settings.algorithm, settings.problem, collector.codec, collector.single_action_space)

    def _open(self) -> None:
        """Make the run folder, or continue the run that is in it."""
        config = self.folder / "config.json"
        saved = checkpoint.checkpoints(self.folder)
        if self.settings.start is not None and not saved:
            checkpoint.load_policy(self.settings.start, self.algorithm)
        if self.settings.overlap:
            self._acting = copy.deepcopy(self.policy)
        if config.exists():
            if metrics.read_config(config)["fingerprint"] != self.run_id:
                raise RunError(f"{self.folder} holds a run with other settings: choose another folder or delete it.")
        else:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                metrics.write_config(config, self.settings, self.run_id, self._start(), self._start_digest)
            except OSError as error:
                raise RunError(f"cannot make the run folder {self.folder}: {error.strerror}.") from None
        if saved:
            self.iteration = checkpoint.load_checkpoint(saved[-1], self._learner(), self.run_id)
            self.rows = metrics.read_rows(self.folder / "metrics.parquet")[: self.iteration]
            if len(self.rows) < self.iteration:
                raise CheckpointError(
                    f"{self.folder} has fewer rows in metrics.parquet than its checkpoint has iterations: "
                    "start again in another folder."
                )

    def _start(self) -> str:
        if self.settings.start is not None:
            return f"checkpoint {self.settings.start}"
        return "phase I" if getattr(self.settings.algorithm, "phase_one", 0) else "initial policy"

    @property
    def policy(self) -> Policy:
        policy: Policy = self.algorithm.policy
        return policy

    def run(self, watch: Watcher | None = None) -> list[LogRow]:
        """Train to the end, or until `watch` has seen enough, and return the log, one row per iteration.

        Raises `InfeasibleConstraintError` if the end comes while the algorithm is still looking for a feasible policy.
        An interrupt (Ctrl-C) completes the iteration and saves it before it is raised; a second one is raised at once.
        """
        if self._is_in_use():
            raise RunError(
                f"another process is training in {self.folder}: wait until it has ended, or stop it; then run the same "
                "command again, and it continues from the checkpoint of that process."
            )
        events = metrics.Events(self.folder, self.iteration) if self.settings.tensorboard else None
        enough = False
        with mark_alive(self.folder / ALIVE), interrupt_held_back() as interrupted:
            try:
                while self.iteration < self.settings.iterations and not enough and not interrupted.is_set():
                    begun = time.perf_counter()
                    row = self._iterate()
                    self.rows.append(row)
                    self.iteration += 1
                    rate = float(row["steps"]) / (time.perf_counter() - begun)
                    if events:
                        events.add(self.iteration, row | {"steps_per_second": rate})
                    if watch:
                        enough = bool(watch(row | {"steps_per_second": rate}))
                    if self.iteration % self.settings.checkpoint_every == 0:
                        self._save()
            finally:
                if events:
                    events.close()
            self._save()
        if interrupted.is_set():
            raise KeyboardInterrupt
        if not enough:
            self.algorithm.finish(self.iteration)
        return self.rows

    def _is_in_use(self) -> bool:
        """Whether another process trains here, and does not only look whether somebody does, which takes a moment."""
        for _ in range(5):
            if not is_alive(self.folder / ALIVE):
                return False
            time.sleep(0.05)
        return True

    def _iterate(self) -> LogRow:
        row: LogRow = {"iteration": float(self.iteration)}
        if self.probe:
            row |= self.probe(self.policy, self.iteration)
        rollout = self._collect()
        generator = torch_generator(stream(self.settings.seed, self.iteration, Purpose.UPDATE))
        row |= self.algorithm.update(rollout, self.iteration, generator)
        if self.gauge:
            row |= self.gauge(rollout, self.iteration)
        row["steps"] = float(len(rollout))
        row["episodes"] = float(rollout.episodes)
        bad = [name for name, value in row.items() if isinstance(value, float) and math.isnan(value)]
        if bad or not all(parameter.isfinite().all() for parameter in self.policy.parameters()):
            raise DivergenceError(
                f"training diverged in iteration {self.iteration} ({', '.join(bad) or 'policy weights'} not finite): "
                "lower the learning rate; the checkpoints before it are intact."
            )
        return row

    def _collect(self) -> Rollout:
        if self._acting is None:
            return self.collector.collect(self.policy, self.iteration)
        if self._begun != self.iteration:
            self.collector.begin(self._acting, self.iteration)
        self._begun = None
        rollout = self.collector.finish()
        self._acting.load_state_dict(self.policy.state_dict())
        if self.iteration + 1 < self.settings.iterations:
            self.collector.begin(self._acting, self.iteration + 1)
            self._begun = self.iteration + 1
        return rollout

    def _learner(self) -> checkpoint.Learner:
        """What a checkpoint holds."""
        return self.algorithm if self._acting is None else _WithActing(self.algorithm, self._acting)

    def _save(self) -> None:
        # Rows first: after a crash in between, resuming cuts them back to the checkpoint.
        try:
            metrics.write_rows(self.folder / "metrics.parquet", self.rows)
            checkpoint.save_checkpoint(self.folder, self._learner(), self.iteration, self.run_id)
        except OSError as error:
            raise RunError(
                f"cannot save to {self.folder} ({error.strerror}): make room and run again, it continues from the "
                "checkpoint before."
            ) from None


class _WithActing:
    """An algorithm, and the policy that collects the batch after its newest update."""

    def __init__(self, algorithm: Algorithm, acting: Policy) -> None:
        self._algorithm, self._acting = algorithm, acting
        self.optimisers: Callable[[], Sequence[torch.optim.Optimizer]] = algorithm.optimisers

    def state_dict(self) -> dict[str, Any]:
        acting = {f"acting.{name}": tensor for name, tensor in self._acting.state_dict().items()}
        return self._algorithm.state_dict() | acting

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        acting = {name: tensor for name, tensor in state_dict.items() if name.startswith("acting.")}
        self._acting.load_state_dict({name.removeprefix("acting."): tensor for name, tensor in acting.items()})
        self._algorithm.load_state_dict({k: v for k, v in state_dict.items() if k not in acting})


@contextmanager
def interrupt_held_back() -> Iterator[threading.Event]:
    """Until the block ends, the first Ctrl-C only sets the event: stopped inside an update, a policy is half new.

    Where somebody else handles interrupts, or this is not the main thread, they stay as they are.
    """
    interrupted = threading.Event()
    ours = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )

    def note(*_: object) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
