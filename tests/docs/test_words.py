"""One glossary, prose that fits the page, files that can be read in one go, names that say what they are."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIDTH = 100
LINES = 400
REPLACED = {
    r"\bvouch": "insufficient price history",
    r"\banew\b": "again, or restart",
    r"\bwhoever\b": "anyone who, or name them",
    r"\bhands? it out\b": "serve it",
    r"\b(?:goes|go|went|going) on (?:where|from|with|to the)\b": "resume, continue",
    r"\bmanieth\b": "the number",
    r"\bamiss\b": "wrong",
    r"\bheeds?\b": "takes into account",
    r"\bstormy\b": "volatile",
    r"\bhang the (?:command|group)\b": "add the command",
    r"\bprice relatives?\b": "gross returns",
    r"\blaws? of (?:the )?(?:return|reward|cost|Y|Z)": "distribution",
}
"""Pattern → what the glossary says instead."""
PARTICIPLES = frozenset(
    {
        *("applied", "asked", "booked", "brought", "checked", "chosen", "decided", "described", "drawn", "found"),
        *("given", "guarded", "kept", "known", "lacking", "listed", "made", "matching", "merged", "planned"),
        *("resolved", "said", "saved", "shortened", "shown", "stated", "taken", "told", "walked"),
    }
)
"""A name that is one of these, and nothing else, says neither what it is nor what it does."""


def tracked(*patterns: str) -> list[Path]:
    """The files of the repository that match, without those that are only in the working tree."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


PAGES = [path for path in tracked("*.md") if "tests" not in path.parts]
SOURCES = tracked("portfolio_sdpo/*.py", "app/*.py")

if not PAGES or not SOURCES:
    pytest.skip("not a git checkout", allow_module_level=True)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page, numbered, without code, tables, pictures and lines that a link or code makes long."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "    ", "!", "#")):
            yield number, line


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Every string of a source, docstrings included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def definitions(path: Path) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", [path for path in PAGES if path.parent.name != "api"], ids=relative)
def test_prose_fits_the_width(path: Path):
    long = [
        f"{relative(path)}:{number} has {len(line)} columns"
        for number, line in prose(path)
        if len(line) > WIDTH and len(re.sub(r"`[^`]*`|\]\([^)]*\)|https?://\S+", "", line)) > WIDTH - 20
    ]
    assert long == []


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_no_placeholder_is_left(path: Path):
    """`@TABLE@` stands for what is still to be written."""
    left = re.findall(r"@[A-Z]+@", path.read_text(encoding="utf-8"))
    assert left == [], f"{relative(path)} has {', '.join(left)}: write it, or say that it was not measured"


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=relative)
def test_words_are_those_of_the_glossary(path: Path):
    if path.name in ("CONTRIBUTING.md", "CHANGELOG.md"):  # they name words that are no longer used
        return
    if path.suffix == ".md":
        texts = list(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
    else:
        texts = list(strings(path))
    for pattern, instead in REPLACED.items():
        for number, text in texts:
            found = re.search(pattern, text, re.IGNORECASE)
            assert found is None, f"{relative(path)}:{number} says {found[0]!r}: write {instead!r}"


def test_no_file_is_too_long():
    paths = [*SOURCES, *tracked("tests/*.py", "benchmarks/*.py", "docs/*.py")]
    counts = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert {name: count for name, count in counts.items() if count > LINES} == {}


def test_no_name_is_a_bare_participle():
    bare = [
        f"{relative(path)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in definitions(path)
        if node.name.strip("_").lower() in PARTICIPLES
    ]
    assert bare == []
