"""What a run writes down: its configuration, a Parquet table of metrics, TensorBoard events."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import portfolio_sdpo
from portfolio_sdpo.common.files import write_atomically
from portfolio_sdpo.errors import RunError
from portfolio_sdpo.settings import Settings

LogRow = dict[str, float | str]
"""One row of the training log: numbers by column, and the barrier's regimes as words.

| column | |
|---|---|
| `return`, `objective` | mean return of the batch's whole episodes; the learner's estimate of what it maximises |
| `risk_i`, `risk_se_i` | estimate of constraint i's risk, and its standard error |
| `risk_plug_in_i`, `risk_empirical_i` | the critic's own value of it, and that of the episodes just seen |
| `slack_i`, `price_i`, `regime_i` | how far inside the bound, what a unit of risk costs, where on the barrier |
| `phase`, `suboptimality_bound` | 1 while a feasible policy is sought; Σ 1/η_i of Theorem 1 |
| `critic_loss`, `explained_variance` | last loss of the critics; share of the λ-returns' variance that they explain |
| `kl`, `entropy`, `clip_fraction` | of the policy after the update; share of ratios beyond the clipping range |
| `recovery`, `step_length` | CPO and PCPO: whether a step only decreased costs, and the accepted share of it |
"""


def write_config(path: Path, settings: Settings, fingerprint: str, start: str, start_digest: str) -> None:
    """Everything needed to run it again; `start` says where the feasible start came from, its digest what was in it."""
    record = {
        "version": portfolio_sdpo.__version__,
        "fingerprint": fingerprint,
        "start": start,
        "start_digest": start_digest,
        "settings": settings.model_dump(mode="json"),
    }
    write_atomically(path, (json.dumps(record, indent=2) + "\n").encode())


def read_config(path: Path) -> dict[str, Any]:
    """The record that `write_config` wrote."""
    try:
        record: dict[str, Any] = json.loads(path.read_text())
        record["fingerprint"], record["settings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}): choose another run folder or delete this one.") from None
    return record


def write_rows(path: Path, rows: list[LogRow]) -> None:
    """The whole log as one Parquet file; columns are the union of all rows' names in order of appearance."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    write_atomically(path, buffer.getvalue())


def read_rows(path: Path) -> list[LogRow]:
    """The log as it was; an entry that a row did not have stays absent."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"the log {path} cannot be read ({error}): start again in another folder.") from None
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


class Events:
    """TensorBoard's event files; they carry wall-clock times and are no part of the reproducible result."""

    def __init__(self, folder: Path, iteration: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # slow to import, and not always wanted

        self._writer = SummaryWriter(str(folder / "events"), purge_step=iteration + 1)

    def add(self, iteration: int, row: LogRow) -> None:
        for name, value in row.items():
            if isinstance(value, float):
                self._writer.add_scalar(name, value, iteration)

    def close(self) -> None:
        self._writer.close()
