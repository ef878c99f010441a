"""Where experiments are, and how small records are written there and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from portfolio_sdpo.common.files import data_directory, write_atomically
from portfolio_sdpo.errors import RunError


def experiment_folder(name: str) -> Path:
    """Where an experiment's runs, summary and figures are."""
    return data_directory() / "experiments" / name


def write_json(path: Path, record: Any) -> None:
    """Atomically, indented; a `RunError` if there is no room for it."""
    write_content(path, (json.dumps(record, indent=2) + "\n").encode())


def write_content(path: Path, content: bytes) -> None:
    """Atomically; a `RunError` if there is no room for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise RunError(
            f"cannot write {path} ({error.strerror}): make room and run again, it goes on from here."
        ) from None


def read_json(path: Path) -> Any:
    """What `write_json` wrote."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}): delete its folder and run the experiment again.") from None
