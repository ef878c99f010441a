"""The pages: README, docs, and whatever else people read here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def written() -> list[Path]:
    """Every page that is written by hand or made, notebooks too."""
    folders = (ROOT, ROOT / "docs", ROOT / "docs" / "api", ROOT / "app", ROOT / "data", ROOT / "notebooks")
    return sorted(path for folder in folders for kind in ("md", "ipynb") for path in folder.glob(f"*.{kind}"))


class Page:
    """A page as text; of a notebook its prose."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            cells = [cell for cell in json.loads(self.text)["cells"] if cell["cell_type"] == "markdown"]
            self.text = "\n\n".join("".join(cell["source"]) for cell in cells)

    def blocks(self, language: str) -> list[str]:
        """What is between fences of that language."""
        return [code for kind, code in FENCE.findall(self.text) if kind == language]

    @property
    def prose(self) -> str:
        """Without code blocks."""
        return FENCE.sub("", re.sub(r"(?m)^ {4}.*$", "", self.text))

    def code_lines(self) -> list[str]:
        """Lines of commands: in fences of the shell, indented, and in between backticks."""
        fenced = [
            line for kind in ("console", "bash", "sh") for code in self.blocks(kind) for line in code.splitlines()
        ]
        indented = re.findall(r"(?m)^ {4,}(.*)$", FENCE.sub("", self.text))
        return [*fenced, *indented, *re.findall(r"`([^`\n]+)`", FENCE.sub("", self.text))]


@pytest.fixture(params=written(), ids=lambda path: str(path.relative_to(ROOT)))
def page(request: pytest.FixtureRequest) -> Page:
    return Page(request.param)


@pytest.fixture
def readme() -> Page:
    return Page(ROOT / "README.md")
