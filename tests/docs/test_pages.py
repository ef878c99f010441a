"""What pages say is there: links and anchors, files that they name, commands with their options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from portfolio_sdpo import cli
from portfolio_sdpo.cli._frame import PROGRAM

ROOT = Path(__file__).parents[2]
COMMANDS = typer.main.get_command(cli.build_app())
AT_ONCE = {"--help", "--version", "--install-completion", "--show-completion"}
"""Options that act while the line is read."""
ENDS = {"&&", "||", ";", "|", "&", ">", ">>", "2>&1", "(", ")"}


def anchors(path: Path) -> set[str]:
    """Of the headings of a page, as GitHub makes them."""
    found = re.findall(r"(?m)^#+ +(.*?) *$", path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_links_and_anchors_resolve(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.prose):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        goal = (page.path.parent / place).resolve() if place else page.path
        assert goal.exists(), target
        assert ROOT in goal.parents and (not anchor or anchor in anchors(goal)), target


def test_files_that_are_named_are_there(page):
    if page.path.parent.name == "api":
        return
    for name in re.findall(r"`((?:[\w.]+/)*\w+\.py)\b", page.text):
        somewhere = (page.path.parent / name, ROOT / name, ROOT / "portfolio_sdpo" / name)
        known = any(path.exists() for path in somewhere) or any(
            path.match(name)
            for folder in ("portfolio_sdpo", "app", "benchmarks", "tests")
            for path in (ROOT / folder).rglob(Path(name).name)
        )
        assert known or "mine.py" in name, name


def commands_in(line: str) -> list[list[str]]:
    """The arguments of every call of the program in a line of a shell, comments left out."""
    line = re.sub(r"(^|\s)#.*$", "", line)
    if f"{PROGRAM} " not in f"{line} ":
        return []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # prose that happens to have an apostrophe
        return []
    calls = []
    for start, word in enumerate(words):
        if word == PROGRAM or word.endswith(f"/{PROGRAM}"):
            end = next((place for place in range(start, len(words)) if words[place] in ENDS), len(words))
            calls.append(words[start + 1 : end])
    return calls


def understood(arguments: list[str]) -> None:
    """Down to the command that the line ends in, with its options parsed and nothing run; an error if it is wrong."""
    asked = AT_ONCE.intersection(arguments)
    words = [word for word in arguments if word not in asked]
    command, context = COMMANDS, None
    if not words:
        known = {name for parameter in COMMANDS.params for name in parameter.opts} | {"--help"}
        assert not asked or asked <= known
        return
    context = COMMANDS.make_context(PROGRAM, list(words))
    while hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        if asked and not rest:
            return
        name, command, rest = command.resolve_command(context, rest)
        if asked and not hasattr(command, "commands"):
            return
        context = command.make_context(name, rest, parent=context)


def test_commands_are_understood(page):
    for line in page.code_lines():
        for arguments in commands_in(line.removeprefix("$ ")):
            if "..." in " ".join(arguments) or "…" in arguments or "COMMAND" in arguments:
                continue
            try:
                understood(arguments)
            except Exception as error:
                pytest.fail(f"{line}: {getattr(error, 'message', error)}")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "30 22 * * 1-5  portfolio-sdpo data update tech --json >> $HOME/tech.log 2>&1",
            [["data", "update", "tech", "--json"]],
        ),
        (
            "portfolio-sdpo models add F && portfolio-sdpo models promote ID --reason 'a b'  # why",
            [["models", "add", "F"], ["models", "promote", "ID", "--reason", "a b"]],
        ),
        (".venv/bin/portfolio-sdpo doctor", [["doctor"]]),
        ("the portfolio's way", []),
    ],
)
def test_commands_are_found(line: str, found: list[list[str]]):
    assert commands_in(line) == found


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("data fech", "No such command"),
        ("backtest --no-such-option", "No such option"),
        ("train --seeds x", "integer"),
        ("models promote", "Missing"),
    ],
)
def test_a_wrong_command_would_be_noticed(line: str, told: str):
    with pytest.raises(Exception, match=told):
        understood(line.split())


def test_the_map_names_every_page():
    named = (ROOT / "docs" / "index.md").read_text()
    for path in (ROOT / "docs").glob("*.md"):
        assert path.name == "index.md" or f"]({path.name}" in named, path.name


def test_every_table_of_results_has_its_command_beside_it(readme):
    """After a table and before the next one; the same of docs/results.md is for its reader to see."""
    results = readme.text.partition("## Results")[2].partition("\n## ")[0]
    tables = re.split(r"(?m)^\|[ -|]*---[ -|]*\|$", results)[1:]
    assert len(tables) >= 2
    for after in tables:
        assert re.search(r"(?m)^ {4}portfolio-sdpo .+", after), after[:200]


def test_the_readme_has_what_a_newcomer_looks_for(readme):
    text = readme.text
    for word in ("make demo", "make test", "docs/figures/dashboard.png", "FinRL", "skfolio", "OmniSafe", "## Limits"):
        assert word in text, word
    assert len(re.findall(r"(?m)^\*\*[1-5]\. ", text)) == 5
    assert text.index("make demo") < 2500  # near the top
