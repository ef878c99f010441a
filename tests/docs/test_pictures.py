"""Pictures that scripts draw: badges say what the project says, and the terminal shows what a command printed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"


def load(name: str) -> ModuleType:
    """A script of the folder `docs`."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def terminal() -> ModuleType:
    return load("draw_terminal")


def words(svg: str) -> str:
    """What a drawing says, line by line of its text elements."""
    return "\n".join(
        element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")
    )


def test_badges_are_up_to_date_and_in_the_readme():
    badges = load("draw_badges").badges()
    assert {path.name: path.read_text(encoding="utf-8") for path in FIGURES.glob("badge-*.svg")} == badges
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, svg in badges.items():
        label = ElementTree.fromstring(svg).attrib["aria-label"]
        assert f"(docs/figures/{name})" in readme and label.rpartition(": ")[2] in readme


def text(screen) -> list[str]:
    return ["".join(letter for letter, _ in row) for row in screen.rows]


def test_screen_writes_over_what_a_bar_has_drawn(terminal: ModuleType):
    screen = terminal.Screen()
    screen.feed("begin\r\n\x1b[?25l50 %\r\n50 % of it\r\x1b[")
    screen.feed("2K\x1b[1A\x1b[2K100 %\r\nend\x1b[?25h\r\n")
    assert text(screen) == ["begin", "100 %", "end", ""]


def test_screen_keeps_colours(terminal: ModuleType):
    screen = terminal.Screen()
    screen.feed("a\x1b[1;32mb\x1b[0m\x1b[38;2;1;2;255mc\x1b[38;5;237md\x1b[39me")
    plain, bold, blue, grey, last = (style for _, style in screen.rows[0])
    assert plain == last == terminal.Style()
    assert bold == terminal.Style(terminal.PALETTE[2], bold=True)
    assert (blue.colour, grey.colour) == ("#0102ff", "#3a3a3a")


def test_recording_holds_what_a_command_prints_and_no_place_of_this_machine(
    terminal: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(terminal, "COMMAND", ("portfolio-sdpo", "doctor"))
    monkeypatch.setattr(terminal, "FIGURE", tmp_path / "doctor.svg")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    terminal.record(tmp_path / "doctor.cast")
    terminal.draw(tmp_path / "doctor.cast")
    drawn = (tmp_path / "doctor.svg").read_text(encoding="utf-8")
    assert "portfolio-sdpo doctor" in words(drawn) and terminal.HOME in words(drawn)
    assert "tmp" not in words(drawn).replace(str(ROOT), "")


def test_recording_cuts_neither_letters_nor_the_folder(terminal: ModuleType):
    content, home = "in /tmp/a\u00e4 and /tmp/a\u00e4/b.\n".encode(), "/tmp/a\u00e4"
    for first in range(len(content)):
        for second in range(first, len(content)):
            events = [(1.0, content[:first]), (2.0, content[first:second]), (3.0, content[second:])]
            pieces = list(terminal._split_pieces(events, home))
            assert [moment for moment, _ in pieces] == [1.0, 2.0, 3.0]
            assert "".join(piece for _, piece in pieces) == f"in {terminal.HOME} and {terminal.HOME}/b.\n"


def test_picture_of_the_demo_shows_all_of_it():
    drawn = (FIGURES / "demo.svg").read_text(encoding="utf-8")
    shown = words(drawn)
    assert all(
        each in shown for each in ("SDPO (shared) + shield", "PPO + shield", "Report", "portfolio-sdpo dashboard")
    )
    assert "~/.local/share/portfolio_sdpo/backtests/" in shown and "/tmp/" not in shown
    assert len(drawn) < 150_000 and "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
