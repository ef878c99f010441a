"""What tests of grids look at: the files that runs leave, and the processes that make them."""

import os
from pathlib import Path

KEPT = ("config.json", "metrics.parquet", "final.json", "evaluation.npy", "checkpoint-*.safetensors")


def contents(root: Path) -> dict[str, bytes]:
    """Every file that a run leaves, but for those of TensorBoard."""
    return {str(path.relative_to(root)): path.read_bytes() for name in KEPT for path in root.glob(f"*/{name}")}


def children(of: int | None = None) -> set[int]:
    """Processes that work for this one; not the one that cleans up after them."""
    found = Path(f"/proc/{of or os.getpid()}/task").glob("*/children")
    pids = {int(pid) for file in found for pid in file.read_text().split()}
    return {pid for pid in pids if lives(pid) and b"resource_tracker" not in _command(pid)}


def lives(pid: int) -> bool:
    """Whether the process is there and not only waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
