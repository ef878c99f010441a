"""Write `docs/api/`, the reference of the Python packages, from their sources: `make docs`.

One page for each room of the house. A name is public if it is in the `__all__` of a module listed here or, where a
module has none, if it is defined there and does not start with an underscore. Sources are read and not imported, so
what the reference says is what is written there. A test fails when the pages are not up to date.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "api"
PACKAGE = "portfolio_sdpo"
ROOMS = {
    "risk": ("risk", "risk.spec"),
    "rl": ("rl", "rl.algorithms"),
    "market": (
        "market.sources",
        "market.layouts",
        "market.cleaning",
        "market.ingest",
        "market.snapshots",
        "market.update",
        "market.samples",
    ),
    "envs": ("envs", "envs.exact", "envs.portfolio", "envs.safety"),
    "backtest": ("backtest", "backtest.presets", "backtest.agent", "backtest.run", "backtest.trained"),
    "experiments": ("experiments.studies", "experiments.reproduce"),
    "registry": ("registry", "registry.retrain"),
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
        lines.append(f"- [{PACKAGE}.{room}]({room}.md): {summary}")
    lines += [
        "",
        "The command line explains itself (`portfolio-sdpo --help`). The REST service has its reference in"
        " `/api/v1/openapi.json`, and a readable page in [docs/serving.md](../serving.md).",
        "",
    ]
    return "\n".join(lines)


def page(room: str, modules: tuple[str, ...]) -> str:
    """The reference of a room."""
    lines = [f"# {PACKAGE}.{room}", "", f"Made by `{COMMAND}`. [All rooms](README.md)", ""]
    for module in modules:
        lines += [f"## {PACKAGE}.{module}", "", first_paragraph(ast.get_docstring(parsed(module))), ""]
        for named in public(module):
            lines += [f"### {named.name}", "", *described(named), ""]
    return "\n".join(lines)


def described(named: Named) -> Iterator[str]:
    """The signature, the first paragraph and, of a class, its fields and public methods."""
    node = named.node
    if isinstance(node, ast.FunctionDef):
        yield from (f"`{signature(node)}`", "", first_paragraph(ast.get_docstring(node)))
    elif isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        yield from (f"`class {node.name}({bases})`" if bases else f"`class {node.name}`", "")
        yield first_paragraph(ast.get_docstring(node))
        members = list(members_of(node))
        if members:
            yield from ("", *members)
    else:
        yield f"`{shortened(ast.unparse(node))}`"
        if named.note:
            yield from ("", named.note)


def members_of(node: ast.ClassDef) -> Iterator[str]:
    """A line for each field, property and method that is public and documented."""
    for item, following in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.target.id[0] != "_":
            yield f"- `{shortened(ast.unparse(item))}`{told(text_of(following))}"
        elif isinstance(item, ast.FunctionDef) and item.name[0] != "_" and ast.get_docstring(item):
            decorators = {ast.unparse(each).partition("(")[0] for each in item.decorator_list}
            if "property" in decorators or "cached_property" in decorators:
                result = f": {ast.unparse(item.returns)}" if item.returns else ""
                yield f"- `{item.name}{result}`{told(ast.get_docstring(item))}"
            elif not {"field_validator", "model_validator", "overload"} & decorators:
                yield f"- `{signature(item, method=True)}`{told(ast.get_docstring(item))}"


def told(text: str | None) -> str:
    """What is put behind a member."""
    return f": {first_paragraph(text)}" if text else ""


def signature(node: ast.FunctionDef, *, method: bool = False) -> str:
    """As it is written, without `def` and, of a method, without its first argument."""
    arguments = node.args
    static = any(ast.unparse(each) == "staticmethod" for each in node.decorator_list)
    if method and arguments.args and not static:
        arguments.args = arguments.args[1:]
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(arguments)}){result}"


def shortened(text: str, longest: int = 160) -> str:
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
        yield found(module, name)


def found(module: str, name: str) -> Named:
    """The definition of a name, followed through imports."""
    for named in definitions(module):
        if named.name == name:
            return named
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{PACKAGE}."):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return found(node.module.removeprefix(f"{PACKAGE}."), alias.name)
    raise LookupError(f"{module} lists {name}, and it is not found")


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
    """Write the pages, and remove those of rooms that are no more."""
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
