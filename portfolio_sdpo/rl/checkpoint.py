"""Checkpoints: one safetensors file with networks, optimisers and running estimates, written atomically.

Random numbers and the environment need no state here: both restart in every iteration from (seed, iteration), see
`rl.rollout`. Torch computes with one thread (`single_thread`), so that a resumed run ends with the same bytes on a busy
machine too. A file holds the digest of its content, so a flipped byte is found, and nothing in it is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from portfolio_sdpo.common.files import write_atomically
from portfolio_sdpo.errors import CheckpointError
from portfolio_sdpo.rl.algorithms.base import Algorithm

_PATTERN = "checkpoint-*.safetensors"
_RECORD = "portfolio_sdpo"
"""Name of the metadata entry: JSON with iteration, run and digest."""
_NAMELESS = "the checkpoint"
KEPT = 2
"""How many of the newest checkpoints stay: the newest, and one to fall back on."""


class Learner(Protocol):
    """What has a state: an algorithm, or a learner over price paths."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...

    def optimisers(self) -> Sequence[torch.optim.Optimizer]: ...


def save_checkpoint(folder: Path, learner: Learner, iteration: int, run: str) -> Path:
    """Write the state after `iteration` iterations of the run with fingerprint `run`; older files beyond `KEPT` go."""
    path = folder / f"checkpoint-{iteration:07d}.safetensors"
    write_atomically(path, checkpoint_bytes(learner, iteration, run))
    for old in checkpoints(folder)[:-KEPT]:
        old.unlink()
    return path


def checkpoint_bytes(learner: Learner, iteration: int, run: str) -> bytes:
    """The content of a checkpoint."""
    tensors = {f"model.{name}": _copy(tensor) for name, tensor in learner.state_dict().items()}
    for number, optimiser in enumerate(learner.optimisers()):
        for index, state in optimiser.state_dict()["state"].items():
            for name, tensor in state.items():
                tensors[f"optimiser.{number}.{index}.{name}"] = _copy(tensor)
    record = {"iteration": iteration, "run": run, "digest": _digest(tensors, iteration, run)}
    # One entry: safetensors writes several in random order, and the same run would not give the same bytes.
    return save(tensors, {_RECORD: json.dumps(record)})


def _copy(tensor: Tensor) -> Tensor:
    """Safetensors refuses tensors that share memory, as those of a shared trunk do."""
    return tensor.clone(memory_format=torch.contiguous_format)


def checkpoints(folder: Path) -> list[Path]:
    """All checkpoints of a run folder, oldest first."""
    return sorted(folder.glob(_PATTERN))


def load_checkpoint(source: Path | bytes, learner: Learner, run: str) -> int:
    """Put the learner into the saved state, a file or its content, and return the iterations it had seen."""
    tensors, record = _read(source)
    name = source.name if isinstance(source, Path) else _NAMELESS
    if record["run"] != run:
        raise CheckpointError(f"{name} was written by a run with other settings: use another run folder.")
    try:
        learner.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")})
    except RuntimeError:
        raise CheckpointError(
            f"{name} does not fit the networks of this run, which have other layers: use another run folder."
        ) from None
    for number, optimiser in enumerate(learner.optimisers()):
        _restore(optimiser, tensors, f"optimiser.{number}.")
    return int(record["iteration"])


def load_policy(path: Path, algorithm: Algorithm) -> None:
    """Take only the policy from a checkpoint of whatever run: a feasible start learnt elsewhere."""
    tensors, _ = _read(path)
    prefix = "model.policy."
    try:
        algorithm.policy.load_state_dict(
            {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        )
    except RuntimeError:
        raise CheckpointError(
            f"the policy in {path.name} does not fit this run's: give both the same spaces and `actor.hidden`."
        ) from None


def _read(source: Path | bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and record of an intact checkpoint."""
    name = f"checkpoint {source}" if isinstance(source, Path) else _NAMELESS
    try:
        content = _content(source) if isinstance(source, Path) else source
        tensors = load(content)
        # From bytes safetensors gives no metadata; it is in the header, whose length is in the first eight bytes.
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        record = json.loads(header["__metadata__"][_RECORD])
        intact = record["digest"] == _digest(tensors, record["iteration"], record["run"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError, AssertionError) as error:
        raise CheckpointError(_corrupt(name, " ".join(str(error).split()))) from None
    if not intact:
        raise CheckpointError(_corrupt(name, "its digest does not match"))
    return tensors, record


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(_missing(path)) from None


def _missing(path: Path) -> str:
    return f"there is no checkpoint at {path}."


def _corrupt(name: str, reason: str) -> str:
    return f"{name} is corrupt ({reason}): delete it to continue from the one before it."


def _restore(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], prefix: str) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith(prefix):
            index, name = key.removeprefix(prefix).split(".")
            state.setdefault(int(index), {})[name] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _digest(tensors: dict[str, Tensor], iteration: int, run: str) -> str:
    digest = hashlib.sha256(json.dumps([iteration, run]).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), *tensor.shape]).encode())
        digest.update(tensor.detach().numpy().tobytes())
    return digest.hexdigest()


def content_digest(path: Path) -> str:
    """A short name for the content of a checkpoint, wherever it lies."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except FileNotFoundError:
        raise CheckpointError(_missing(path)) from None
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read ({error.strerror}).") from None


def fingerprint(parts: Sequence[str]) -> str:
    """A short name for what a run is: equal settings and version give equal fingerprints."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@contextmanager
def single_thread() -> Iterator[None]:
    """One torch thread, so that the result does not depend on how many runs share the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
