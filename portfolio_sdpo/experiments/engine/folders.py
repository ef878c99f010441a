"""The folders of experiments, and how small records are written there and read back."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from portfolio_sdpo.common.files import data_directory, write_atomically
from portfolio_sdpo.errors import RunError


def experiments_folder() -> Path:
    """The folder of all experiments."""
    return data_directory() / "experiments"


def experiment_folder(name: str) -> Path:
    """The folder of an experiment's runs, summary and figures."""
    return experiments_folder() / name


def write_json(path: Path, record: Any) -> None:
    """Write a record atomically, indented; a `RunError` if it cannot be written."""
    write_content(path, (json.dumps(record, indent=2) + "\n").encode())


def write_content(path: Path, content: bytes) -> None:
    """Write bytes atomically; a `RunError` if they cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise RunError(
            f"cannot write {path} ({error.strerror}): make room and run the same command again, which resumes here."
        ) from None


def read_json(path: Path) -> Any:
    """Read what `write_json` wrote."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}): delete its folder and run the experiment again.") from None


def find_run_folders(root: Path, pattern: str, experiment: str, only: Collection[str] | None = None) -> list[Path]:
    """Folders of runs, finished or not, whose names match a pattern; a `RunError` if there are none.

    only: names of the folders that are wanted, None for all.
    """
    folders = sorted({path.parent for kind in ("config", "failure") for path in root.glob(f"{pattern}/{kind}.json")})
    if only is not None:
        folders = [folder for folder in folders if folder.name in only]
    if not folders:
        raise missing_runs(root, experiment)
    return folders


def missing_runs(root: Path, experiment: str) -> RunError:
    """The error that says that a folder has none of the runs that were asked for."""
    return RunError(f"{root} holds no such runs yet: start them with `portfolio-sdpo experiment run {experiment}`.")
