"""The seeds of a strategy taken together, for readers: one line in a table, one curve in a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAIN_BENCHMARKS = ("maximum-return", "equal-weight", "minimum-cvar", "minimum-variance", "risk-parity", "cash")
"""Those that a reader wants to see first."""


@dataclass(frozen=True)
class Group:
    """All records of `metrics.json` with one name."""

    name: str
    kind: str
    records: tuple[dict[str, Any], ...]
    """One per seed."""

    @property
    def shown(self) -> dict[str, Any]:
        """The seed in the middle by final wealth (the lower of two): a real track, so its figures belong together."""
        ordered = sorted(self.records, key=lambda record: (record["final_wealth"], record["seed"] or 0))
        return ordered[(len(ordered) - 1) // 2]

    @property
    def key(self) -> tuple[str, int | None]:
        """Strategy and seed of what is shown."""
        return self.name, self.shown["seed"]

    def range(self, figure: str) -> tuple[float, float] | None:
        """Lowest and highest of a figure over the seeds; None for a single one, or where one is not defined."""
        values = [record[figure] for record in self.records]
        if len(values) < 2 or None in values:
            return None
        return min(values), max(values)


def groups(metrics: Sequence[dict[str, Any]]) -> list[Group]:
    """Records by name: agents, each followed by its shielded self, then benchmarks, in the order they were run."""
    named: dict[str, list[dict[str, Any]]] = {}
    for record in metrics:
        named.setdefault(record["strategy"], []).append(record)
    found = [Group(name, records[0]["kind"], tuple(records)) for name, records in named.items()]
    return sorted(found, key=lambda group: group.kind == "benchmark")


def main_group(found: Sequence[Group]) -> Group:
    """What the reader is told of first: the first agent, shielded if it is, else the strongest benchmark."""
    by_name = {group.name: group for group in found}
    first = found[0]
    if first.kind != "benchmark":
        return by_name.get(f"{first.name} + shield", first)
    return next((by_name[name] for name in MAIN_BENCHMARKS if name in by_name), first)


def rival(found: Sequence[Group], main: Group) -> Group | None:
    """What the main one is compared with in a sentence: 1/N, or else the first other benchmark."""
    others = [group for group in found if group.kind == "benchmark" and group.name != main.name]
    return next((group for group in others if group.name == "equal-weight"), others[0] if others else None)
