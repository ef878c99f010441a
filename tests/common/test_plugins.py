"""Extensions declared by other packages are found by their entry points, and a broken one is only warned of."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from portfolio_sdpo.common.plugins import Plugins, load_plugins

GROUP = "portfolio_sdpo.test-colours"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    load_plugins.cache_clear()
    yield
    load_plugins.cache_clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package that declares one extension which works and one which does not."""
    (tmp_path / "colours_from_afar.py").write_text("GREEN = object()\n")
    info = tmp_path / "colours_from_afar-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: colours-from-afar\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\ngreen = colours_from_afar:GREEN\nbroken = colours_from_afar:MISSING\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("colours_from_afar", None)


def test_no_package_declares_anything_in_an_unknown_group() -> None:
    assert load_plugins(GROUP) == {}


def test_declared_objects_are_loaded_once_and_broken_ones_are_warned_of(package: Path) -> None:
    with pytest.warns(UserWarning, match=r"colours-from-afar.*'broken'.*cannot be loaded"):
        found = load_plugins(GROUP)
    assert list(found) == ["green"]
    assert load_plugins(GROUP) is found


@pytest.mark.filterwarnings("ignore:colours-from-afar")
def test_a_registry_holds_its_own_registered_and_declared_objects(package: Path) -> None:
    colours: Plugins[object] = Plugins(GROUP, {"red": 1})
    assert colours["red"] == 1 and "colours_from_afar" not in sys.modules
    colours.register("blue", 2)
    assert sorted(colours) == ["blue", "green", "red"] and len(colours) == 3
    assert colours["green"] is sys.modules["colours_from_afar"].GREEN
    assert "yellow" not in colours


@pytest.mark.filterwarnings("ignore:colours-from-afar")
def test_names_are_given_once(package: Path) -> None:
    colours: Plugins[object] = Plugins(GROUP, {"red": 1, "green": 3})
    one = object()
    colours.register("one", one)
    colours.register("one", one)
    with pytest.raises(ValueError, match="'one' is taken"):
        colours.register("one", 2)
    assert colours["green"] == 3 and len(colours) == 3
