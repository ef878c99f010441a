"""Write `docs/api/`, the reference of the Python packages, from their sources: `make docs`.

The front door comes first, with whole docstrings; then one page for each room. A name is public if it is in the
`__all__` of a module listed here or, where a module has none, if it is defined there and does not start with an
underscore. Sources are parsed and not imported, so the reference says what is written there. A test fails when the
pages are not up to date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "api"
PACKAGE = "portfolio_sdpo"
WIDTH = 100
DOOR = "front-door"
"""The page of the package itself."""
ROOMS = {
    DOOR: ("",),
    "risk": ("risk", "risk.spec"),
    "rl": ("rl", "rl.algorithms"),
    "prices": (
        "prices.sources",
        "prices.layouts",
        "prices.cleaning",
        "prices.ingest",
        "prices.snapshots",
        "prices.update",
        "prices.samples",
    ),
    "portfolio": (
        "portfolio.allocator",
        "portfolio.agent",
        "portfolio.presets",
        "portfolio.shield",
        "portfolio.market",
        "portfolio.accounting",
        "portfolio.limits",
        "portfolio.store",
    ),
    "envs": ("envs", "envs.exact", "envs.portfolio", "envs.safety"),
    "backtest": ("backtest", "backtest.run", "backtest.statistics", "backtest.promise"),
    "experiments": ("experiments.study", "experiments.catalogue", "experiments.paper.reproduce"),
    "registry": ("registry", "registry.retrain"),
    "serving": ("serving",),
    "common": ("common.plugins", "common.files"),
    "errors": ("errors",),
}
COMMAND = "make docs"
Definition = ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True)
class Named:
    """A public name and where it is defined."""

    name: str
    node: ast.stmt
    note: str
    """The string below it, for what has no docstring of its own."""


def pages() -> dict[str, str]:
    """Every page by the name of its file."""
    rooms = {f"{room}.md": page(room, modules) for room, modules in ROOMS.items()}
    return {"README.md": index()} | rooms


def index() -> str:
    """The page that names the others."""
    lines = ["# API reference", "", f"Made from the docstrings by `{COMMAND}`; do not edit it by hand.", ""]
    for room, modules in ROOMS.items():
        summary = first_paragraph(ast.get_docstring(parsed(modules[0] if len(modules) == 1 else room)))
        lines.append(wrap(f"- [{title(room)}]({room}.md): {summary}", "  "))
    last = (
        "The command line has help for every command (`portfolio-sdpo --help`). The REST service has its reference in "
        "`/api/v1/openapi.json` and a guide in [docs/serving.md](../serving.md)."
    )
    lines += ["", wrap(last), ""]
    return "\n".join(lines)


def title(room: str) -> str:
    """The dotted name of a room."""
    return PACKAGE if room == DOOR else f"{PACKAGE}.{room}"


def page(room: str, modules: tuple[str, ...]) -> str:
    """The reference of a room."""
    lines = [f"# {title(room)}", "", f"Made by `{COMMAND}`. [All rooms](README.md)", ""]
    for module in modules:
        text = ast.get_docstring(parsed(module)) or ""
        if room == DOOR:
            lines += [*fenced(text), ""]
        else:
            lines += [f"## {PACKAGE}.{module}", "", wrap(first_paragraph(text)), ""]
        for named in public(module):
            lines += [f"### {named.name}", "", *describe(named, whole=room == DOOR), ""]
    return "\n".join(lines)


def fenced(text: str) -> list[str]:
    """A docstring as it is written."""
    return ["```text", *inspect.cleandoc(text).splitlines(), "```"]


def wrap(text: str, indent: str = "") -> str:
    """Text in lines of at most `WIDTH` columns, except where code is longer."""
    protected = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), text.replace("- ", "-\0", 1))
    lines = textwrap.wrap(protected, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def describe(named: Named, *, whole: bool = False) -> Iterator[str]:
    """The signature, the first paragraph or the whole docstring and, of a class, its fields and public methods."""
    node = named.node
    if isinstance(node, Definition):
        text = ast.get_docstring(node) or ""
        prose = fenced(text) if whole else [wrap(first_paragraph(text))]
    if isinstance(node, ast.FunctionDef):
        yield from (f"`{signature(node)}`", "", *prose)
    elif isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        yield from (f"`class {node.name}({bases})`" if bases else f"`class {node.name}`", "")
        yield from prose
        members = list(members_of(node))
        if members:
            yield from ("", *members)
    else:
        yield f"`{shorten(ast.unparse(node))}`"
        if named.note:
            yield from ("", wrap(" ".join(named.note.split())))


def members_of(node: ast.ClassDef) -> Iterator[str]:
    """A line for each field, property and method that is public and documented."""
    for item, following in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.target.id[0] != "_":
            yield wrap(f"- `{shorten(ast.unparse(item))}`{explanation(text_of(following))}", "  ")
        elif isinstance(item, ast.FunctionDef) and item.name[0] != "_" and ast.get_docstring(item):
            decorators = {ast.unparse(each).partition("(")[0] for each in item.decorator_list}
            if "property" in decorators or "cached_property" in decorators:
                result = f": {ast.unparse(item.returns)}" if item.returns else ""
                yield wrap(f"- `{item.name}{result}`{explanation(ast.get_docstring(item))}", "  ")
            elif not {"field_validator", "model_validator", "overload"} & decorators:
                yield wrap(f"- `{signature(item, method=True)}`{explanation(ast.get_docstring(item))}", "  ")


def explanation(text: str | None) -> str:
    """The text behind a member."""
    return f": {first_paragraph(text)}" if text else ""


def signature(node: ast.FunctionDef, *, method: bool = False) -> str:
    """As it is written, without `def` and, of a method, without its first argument."""
    arguments = node.args
    static = any(ast.unparse(each) == "staticmethod" for each in node.decorator_list)
    if method and arguments.args and not static:
        arguments.args = arguments.args[1:]
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(arguments)}){result}"


def shorten(text: str, longest: int = 160) -> str:
    """In one line, cut where it is long."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[:longest].rstrip()} …"


def first_paragraph(text: str | None) -> str:
    """In one line, without what follows it."""
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())


def text_of(node: ast.stmt | None) -> str:
    """The string that a statement consists of."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return inspect.cleandoc(node.value.value)
    return ""


def public(module: str) -> Iterator[Named]:
    """The public names of a module, in the order of `__all__` or of their definition."""
    tree = parsed(module)
    listed = next((ast.literal_eval(node.value) for node in tree.body if assigned(node) == "__all__"), None)  # type: ignore[attr-defined]
    if listed is None:
        for named in definitions(module):
            if isinstance(named.node, Definition) and not named.name.startswith("_"):
                yield named
        return
    for name in listed:
        yield find_definition(module, name)


def find_definition(module: str, name: str) -> Named:
    """The definition of a name, followed through imports."""
    for named in definitions(module):
        if named.name == name:
            return named
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{PACKAGE}."):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return find_definition(node.module.removeprefix(f"{PACKAGE}."), alias.name)
    raise LookupError(f"{module or PACKAGE} lists {name}, which is defined nowhere")


def definitions(module: str) -> Iterator[Named]:
    """Classes, functions and constants of a module."""
    body = parsed(module).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, Definition):
            yield Named(node.name, node, "")
        elif name := assigned(node):
            yield Named(name, node, text_of(following))


def assigned(node: ast.stmt) -> str:
    """The name that a statement gives a value to."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return ""


def parsed(module: str) -> ast.Module:
    """The syntax tree of a module, named without the package."""
    path = ROOT.joinpath(PACKAGE, *module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def main() -> None:
    """Write the pages, and remove those of rooms that no longer exist."""
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in written:
            path.unlink()
    for name, content in written.items():
        (FOLDER / name).write_text(content, encoding="utf-8")
    sys.stdout.write(f"{len(written)} pages in docs/api\n")


if __name__ == "__main__":
    main()
