"""Record `portfolio-sdpo demo` in a terminal and draw it as `docs/figures/demo.svg`, for the README.

python docs/draw_terminal.py record demo.cast   # runs the demo in a home of its own
python docs/draw_terminal.py draw demo.cast

A recording is a file of asciinema's second version. The picture shows its end for a while, then some moments on the way
there, again and again; a viewer without animation shows the end.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

FIGURE = Path(__file__).parent / "figures" / "demo.svg"
COMMAND = ("portfolio-sdpo", "demo")
WIDTH, HEIGHT = 100, 60
HOME = "~/.local/share/portfolio_sdpo"
"""Where results go by default, in place of the folder of the recording."""
MOMENTS = 10
"""Pictures before the last one."""
SECONDS, REST = 0.4, 14.0
"""For how long each of them stays, and the last one."""
CELL, LINE, MARGIN, BAR = 7.8, 18, 18, 34
"""Sizes in pixels: a letter, a line, the margins, the bar of the window."""
BACKGROUND, INK = "#11161d", "#d6dde6"
PALETTE = ("#5b6673", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#d6dde6")
_CUT = re.compile(r"\x1b(\[[?\d;]*)?$")
_PIECE = re.compile(r"\S+(?: \S+)*")
_CODE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b[=>]|\r|\n|\x07")


@dataclass(frozen=True)
class Style:
    """How a letter looks."""

    colour: str = INK
    bold: bool = False
    dim: bool = False


Row = list[tuple[str, Style]]


class Screen:
    """As much of a terminal as progress bars and tables need."""

    def __init__(self) -> None:
        self.rows: list[Row] = [[]]
        self._row = self._column = 0
        self._style = Style()
        self._rest = ""

    def feed(self, text: str) -> None:
        """Write what a program has printed; the last code of a piece may end in the next one."""
        text = self._rest + text
        text, self._rest = (text[: cut.start()], cut[0]) if (cut := _CUT.search(text)) else (text, "")
        place = 0
        for match in _CODE.finditer(text):
            self._print(text[place : match.start()])
            place = match.end()
            self._obey(match)
        self._print(text[place:])

    def _obey(self, match: re.Match[str]) -> None:
        code, numbers = match[2], match[1] or ""
        if match[0] == "\r":
            self._column = 0
        elif match[0] == "\n":
            self._row += 1
            self.rows += [[] for _ in range(self._row + 1 - len(self.rows))]
        elif code == "A":
            self._row = max(0, self._row - int(numbers or 1))
        elif code == "K":
            del self.rows[self._row][0 if numbers == "2" else self._column :]
        elif code == "m":
            self._style = _change_style(self._style, [int(each or 0) for each in numbers.split(";")])

    def _print(self, text: str) -> None:
        row = self.rows[self._row]
        row += [(" ", Style())] * (self._column - len(row))
        row[self._column : self._column + len(text)] = [(letter, self._style) for letter in text]
        self._column += len(text)


def _change_style(style: Style, codes: Sequence[int]) -> Style:
    left = list(codes)
    while left:
        code = left.pop(0)
        if code == 0:
            style = Style()
        elif code in (1, 2):
            style = replace(style, bold=style.bold or code == 1, dim=style.dim or code == 2)
        elif code == 22:
            style = replace(style, bold=False, dim=False)
        elif 30 <= code < 38 or 90 <= code < 98:
            style = replace(style, colour=PALETTE[code % 10])
        elif code == 39:
            style = replace(style, colour=INK)
        elif code == 38 and left[:1] == [2]:
            style = replace(style, colour="#{:02x}{:02x}{:02x}".format(*left[1:4]))
            del left[:4]
        elif code == 38 and left[:1] == [5]:
            grey = 8 + 10 * (left[1] - 232)
            style = replace(
                style, colour=f"#{grey:02x}{grey:02x}{grey:02x}" if left[1] >= 232 else PALETTE[left[1] % 8]
            )
            del left[:2]
    return style


def record(path: Path) -> None:
    """Run the command in a terminal of its own, and keep what it prints and when."""
    with tempfile.TemporaryDirectory() as home:
        child, terminal = pty.fork()
        if child == 0:
            os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PORTFOLIO_SDPO_HOME": home}
            os.environ |= {"COLUMNS": str(WIDTH), "LINES": str(HEIGHT)}
            os.execv(Path(sys.executable).with_name(COMMAND[0]), COMMAND)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        begun, events = time.monotonic(), []
        while content := _read(terminal):
            events.append((time.monotonic() - begun, content))
        if status := os.waitpid(child, 0)[1]:
            sys.exit(f"The command ended with {status}.")
    header = {"version": 2, "width": WIDTH, "height": HEIGHT, "command": " ".join(COMMAND)}
    lines = [json.dumps([round(moment, 3), "o", text]) for moment, text in _split_pieces(events, home)]
    path.write_text("\n".join([json.dumps(header), *lines]) + "\n", encoding="utf-8")


def _split_pieces(events: Sequence[tuple[float, bytes]], home: str) -> Iterator[tuple[float, str]]:
    """What was read at each moment, with `HOME` in place of the folder; neither a letter nor that name is cut."""
    whole = b"".join(content for _, content in events)
    text = whole.decode()
    folders = [match.span() for match in re.finditer(re.escape(home), text)]
    size = start = 0
    for moment, content in events:
        size += len(content)
        cut = len(whole[:size].decode(errors="ignore"))
        cut = next((end for begin, end in folders if begin < cut < end), cut)
        yield moment, text[start:cut].replace(home, HOME)
        start = cut


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux says that the other side is closed
        return b""


def draw(path: Path) -> None:
    """Draw a recording."""
    _, *lines = path.read_text(encoding="utf-8").splitlines()
    events = [(moment, text) for moment, _, text in map(json.loads, lines)]
    FIGURE.write_text(to_svg(list(_take_moments(events))), encoding="utf-8")


def _take_moments(events: Sequence[tuple[float, str]]) -> Iterator[list[Row]]:
    """The screen at equal distances in time, and at the end."""
    end, screen, taken = events[-1][0], Screen(), 0
    for moment, text in events:
        if moment > end * (taken + 0.2) / MOMENTS and taken < MOMENTS:
            taken += 1
            yield [list(row) for row in screen.rows]
        screen.feed(text)
    yield screen.rows


def to_svg(screens: Sequence[list[Row]]) -> str:
    """The last screen, which is all that is there without animation, and then the others one after the other."""
    last = len(screens) - 1
    while not any(letter.strip() for letter, _ in screens[last][-1]):
        screens[last].pop()
    prompt: Row = [(letter, Style("#7ee787", bold=True)) for letter in "$ "]
    prompt += [(letter, Style(bold=True)) for letter in " ".join(COMMAND)]
    width = WIDTH * CELL + 2 * MARGIN
    height = BAR + (len(screens[last]) + 2) * LINE + MARGIN
    total = last * SECONDS + REST
    style = [
        "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}",
        ".b{font-weight:700}.d{opacity:.65}",
        "@media (prefers-reduced-motion:no-preference){",
    ]
    groups = [_draw_rows([prompt], 0)]
    for number, rows in enumerate(screens):
        begin, end = (100 * (REST + place * SECONDS) / total for place in (number, number + 1))
        steps = f"0%{{opacity:0}}{begin:.2f}%{{opacity:1}}{min(end, 99.99):.2f}%,100%{{opacity:0}}"
        steps = f"0%{{opacity:1}}{100 * REST / total:.2f}%,100%{{opacity:0}}" if number == last else steps
        style.append(f"@keyframes k{number}{{{steps}}}.f{number}{{animation:k{number} {total:.2f}s step-end infinite}}")
        shown = "" if number == last else ' opacity="0"'
        groups.append(f'<g class="f{number}"{shown}>{_draw_rows(rows, 1)}</g>')
    style.append("}")
    dots = "".join(
        f'<circle cx="{MARGIN + 5 + 18 * place}" cy="{BAR / 2 + 1:g}" r="5.5" fill="{colour}"/>'
        for place, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="A terminal: {escape(" ".join(COMMAND))}">'
        f"<style>{''.join(style)}</style>"
        f'<rect width="{width:g}" height="{height:g}" rx="9" fill="{BACKGROUND}"/>{dots}{"".join(groups)}</svg>\n'
    )


def _draw_rows(rows: Sequence[Row], first: int) -> str:
    parts = []
    for number, row in enumerate(rows, start=first):
        y = BAR + (number + 1) * LINE
        for start, text, style in _runs(row):
            kind = " ".join(name for name, has in (("b", style.bold), ("d", style.dim)) if has)
            shape = f'textLength="{len(text) * CELL:g}" lengthAdjust="spacingAndGlyphs"'
            place = f'x="{MARGIN + start * CELL:g}" y="{y}" fill="{style.colour}" class="{kind}"'
            parts.append(f"<text {place} {shape}>{escape(text)}</text>")
    return "".join(parts)


def _runs(row: Row) -> Iterator[tuple[int, str, Style]]:
    """Pieces of one style without several blanks in them, and where each begins."""
    start = 0
    while start < len(row):
        end = start
        while end < len(row) and row[end][1] == row[start][1]:
            end += 1
        text = "".join(letter for letter, _ in row[start:end])
        for match in _PIECE.finditer(text):
            yield start + match.start(), match[0], row[start][1]
        start = end


if __name__ == "__main__":
    {"record": record, "draw": draw}[sys.argv[1]](Path(sys.argv[2]))
