"""Draw the badges of the README from what `pyproject.toml` says: `python docs/draw_badges.py`.

They are files of this repository, true without any service, and a test draws them again.
"""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "figures"
PAPER = "arXiv 2102.13446"
LETTER, BLANK, HEIGHT = 6.6, 9, 20
"""Sizes in pixels: a letter, the margin beside words, the badge."""


def badges() -> dict[str, str]:
    """The files of the badges with their content."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = [each.rpartition(" :: ")[2] for each in project["classifiers"] if "Python :: 3." in each]
    python = f"{known[0]} to {known[-1]}" if len(known) > 1 else project["requires-python"].replace(">=", "≥ ")
    said = {
        "python": ("Python", python, "#3572a5"),
        "licence": ("licence", project["license"], "#4c8b2b"),
        "tests": ("tests", "make test", "#0b7285"),
        "paper": ("paper", PAPER, "#b31b1b"),
    }
    return {f"badge-{name}.svg": draw_badge(*words) for name, words in said.items()}


def draw_badge(label: str, value: str, colour: str) -> str:
    """Two fields beside each other, as badges are."""
    left, right = (round(len(text) * LETTER + 2 * BLANK) for text in (label, value))
    width = left + right
    style = 'font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" fill="#fff" text-anchor="middle"'
    texts = "".join(
        f'<text x="{place:g}" y="14" textLength="{len(text) * LETTER:g}" lengthAdjust="spacingAndGlyphs">'
        f"{escape(text)}</text>"
        for place, text in ((left / 2, label), (left + right / 2, value))
    )
    size = f'width="{width}" height="{HEIGHT}"'
    fields = f'<rect {size} fill="#4a5058"/><rect x="{left}" width="{right}" height="{HEIGHT}" fill="{colour}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}: {escape(value)}">'
        f'<clipPath id="r"><rect {size} rx="3"/></clipPath><g clip-path="url(#r)">{fields}</g><g {style}>{texts}</g>'
        "</svg>\n"
    )


if __name__ == "__main__":
    for file, content in badges().items():
        (FOLDER / file).write_text(content, encoding="utf-8")
