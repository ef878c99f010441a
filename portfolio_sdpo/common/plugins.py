"""What other packages bring: extensions of this one, and optional packages (`require_extra`).

Extensions are registered at run time, or declared in the metadata of an installed package.

A package declares an extension as an entry point of one of the groups `portfolio_sdpo.…`, in its pyproject.toml:

    [project.entry-points."portfolio_sdpo.algorithms"]
    reinforce = "my_package.reinforce:Reinforce"
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

from portfolio_sdpo.errors import MissingExtraError

Item = TypeVar("Item")


@cache
def load_plugins(group: str) -> dict[str, Any]:
    """Import every object that installed packages declare in this entry-point group; name → object.

    Each group is read once per process. A declaration that cannot be imported is left out with a warning, so that one
    broken package does not stop everything else.

    >>> load_plugins("portfolio_sdpo.nothing-declares-this")
    {}
    """
    found: dict[str, Any] = {}
    from importlib import metadata  # takes a third of the time of --help

    for entry in metadata.entry_points(group=group):
        try:
            found[entry.name] = entry.load()
        except Exception as error:
            package = entry.dist.name if entry.dist else "an installed package"
            warnings.warn(
                f"{package}: its extension {entry.name!r} ({entry.value}) of {group} cannot be loaded: {error}.",
                stacklevel=2,
            )
    return found


class Plugins(Mapping[str, Item]):
    """Objects by name: this package's own, those registered at run time, and those of an entry-point group.

    Looking up a known name imports nothing; an unknown name, or listing all of them, loads the group's plugins first.

    >>> colours = Plugins("portfolio_sdpo.colours", {"red": 1})
    >>> colours.register("blue", 2)
    >>> colours["blue"], sorted(colours)
    (2, ['blue', 'red'])
    """

    def __init__(self, group: str, items: Mapping[str, Item] | None = None) -> None:
        self.group = group
        self._items: dict[str, Item] = dict(items or {})

    def register(self, name: str, item: Item, *, replace: bool = False) -> None:
        """Add an object; a `ValueError` if another one has this name already, unless it is to be replaced."""
        if replace:
            self._items[name] = item
        elif self._items.setdefault(name, item) is not item:
            raise ValueError(f"{self.group}: the name {name!r} is taken by {self._items[name]!r}")

    def peek(self, name: str) -> Item | None:
        """The object of this name as far as it is known already: no plugin is loaded for it."""
        return self._items.get(name)

    def __getitem__(self, name: str) -> Item:
        if name not in self._items:
            self._load()
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(dict(self._items))

    def __len__(self) -> int:
        self._load()
        return len(self._items)

    def _load(self) -> None:
        for name, item in load_plugins(self.group).items():
            # The package's own objects, and what is registered at run time, come before what is declared.
            self._items.setdefault(name, item)


def missing_extra(purpose: str, package: str, extra: str) -> MissingExtraError:
    """Return the error for a purpose (the subject of a sentence) that needs a package of an extra.

    >>> print(missing_extra("A report", "plotly", "backtest"))
    A report needs the package plotly: pip install 'portfolio_sdpo[backtest]'.
    """
    return MissingExtraError(f"{purpose} needs the package {package}: pip install 'portfolio_sdpo[{extra}]'.")


def require_extra(purpose: str, package: str, extra: str) -> None:
    """Raise a `MissingExtraError` unless the package is installed; it is not imported."""
    if find_spec(package) is None:
        raise missing_extra(purpose, package, extra)
