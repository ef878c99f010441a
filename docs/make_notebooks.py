"""Run every notebook in a fresh kernel and store it with its outputs, and as a page in `docs/notebooks`.

python docs/make_notebooks.py [01_quickstart ...]

Figures are reduced to a few colours, and what differs from run to run without meaning anything is left out: times of
execution, the version of Python. `tests/notebooks` runs the notebooks as well and compares.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
PAGES = ROOT / "docs" / "notebooks"
COMMAND = "make notebooks"
WIDTH = 100
COLOURS = 48
"""Of a figure; lines and their blurred edges need no more."""
SOURCE = "source_sha256"
"""Entry of a notebook's metadata: the hash of the code that its outputs are from."""
_KERNEL = "this-interpreter"
_WHOLE = re.compile(r"\$[^$]+\$|`[^`]+`")
"""Formulas and code are not broken."""
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")


def main() -> None:
    """Make the notebooks that are named, or all of them."""
    for name in sys.argv[1:] or list_notebooks():
        with tempfile.TemporaryDirectory() as folder, surroundings(Path(folder)):
            notebook = store_outputs(execute(read_notebook(name), Path(folder)))
        nbformat.write(notebook, NOTEBOOKS / f"{name}.ipynb")
        for old in PAGES.glob(f"{name}*"):
            old.unlink()
        PAGES.mkdir(exist_ok=True)
        for file, content in render(name, notebook).items():
            (PAGES / file).write_bytes(content)


def list_notebooks() -> list[str]:
    """The names of all notebooks, in order."""
    return sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def read_notebook(name: str) -> NotebookNode:
    """A notebook as it is stored."""
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


@contextmanager
def surroundings(folder: Path) -> Iterator[Path]:
    """A home and a kernel of its own below the folder; the kernel is this very interpreter."""
    place = folder / "jupyter" / "kernels" / _KERNEL
    place.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (place / "kernel.json").write_text(json.dumps({"argv": command, "display_name": _KERNEL, "language": "python"}))
    names = {
        "JUPYTER_PATH": folder / "jupyter",
        "JUPYTER_RUNTIME_DIR": folder / "runtime",
        "IPYTHONDIR": folder / "ipython",
        "PORTFOLIO_SDPO_HOME": folder / "home",
        "TMPDIR": folder,
        "OMP_NUM_THREADS": "1",
        # Where figures are not to open windows there are none in a notebook either.
        "MPLBACKEND": None,
    }
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ.update({name: str(value) for name, value in names.items() if value is not None})
    try:
        yield folder / "home"
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def execute(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Run all cells, within `surroundings`; an error in any of them is raised."""
    resources = {"metadata": {"path": str(folder)}}
    executed: NotebookNode = NotebookClient(notebook, timeout=None, kernel_name=_KERNEL, resources=resources).execute()
    return executed


def store_outputs(notebook: NotebookNode) -> NotebookNode:
    """The notebook as it is stored: outputs without what means nothing, figures small."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [_tidy(output) for output in _join_streams(cell.outputs)]
    notebook.metadata["language_info"] = {"name": "python"}
    notebook.metadata[SOURCE] = hash_code(notebook)
    return notebook


def hash_code(notebook: NotebookNode) -> str:
    """Hash of the code, which changes whenever outputs may."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def read_text(output: NotebookNode) -> str | None:
    """What an output says in words; None for a figure."""
    if output.output_type == "stream":
        return str(output.text)
    data = output.get("data", {})
    return None if "image/png" in data else str(data.get("text/markdown", data.get("text/plain", "")))


def _join_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """What was printed in pieces as one output; blank lines at its end go."""
    joined: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return [output for output in joined if output.output_type != "stream" or output.text.strip()]


def _tidy(output: NotebookNode) -> NotebookNode:
    data = output.get("data", {})
    if "image/png" in data:
        picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
        buffer = io.BytesIO()
        picture.quantize(COLOURS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
        output.data = {"image/png": base64.b64encode(buffer.getvalue()).decode()}
    elif "text/markdown" in data:
        output.data = {"text/markdown": data["text/markdown"]}
    output.pop("metadata", None)
    if output.output_type != "stream":
        output.metadata = {}
    return output


def render(name: str, notebook: NotebookNode) -> dict[str, bytes]:
    """The page of a notebook and its figures, by the names of their files."""
    files: dict[str, bytes] = {}
    parts = [f"<!-- Made from notebooks/{name}.ipynb by `{COMMAND}`. -->"]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(_wrap(_LINK.sub(_move_link, cell.source)))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                figure = f"{name}-{len(files) + 1}.png"
                files[figure] = base64.b64decode(data["image/png"])
                parts.append(f"![Figure {len(files)}]({figure})")
            elif "text/markdown" in data:
                parts.append(_wrap(data["text/markdown"]))
            else:
                parts.append(f"```text\n{_strip_lines(read_text(output) or '')}\n```")
    return {f"{name}.md": ("\n\n".join(parts) + "\n").encode()} | files


def _wrap(prose: str) -> str:
    """Markdown with paragraphs and points of lists as wide as other pages."""
    lines: list[str] = []
    for block in re.split(r"\n(?=[-*] |\n)", prose.strip("\n")):
        begin, text = re.fullmatch(r"(\n*(?:[-*] )?)(.*)", block, re.DOTALL).groups()  # type: ignore[union-attr]
        if text.startswith(("|", "#", " ", "`" * 3)):
            lines.append(block)
            continue
        indent = " " * len(begin.strip("\n"))
        words = _WHOLE.sub(lambda match: match[0].replace(" ", "\0"), " ".join(text.split()))
        wrapped = textwrap.wrap(words, WIDTH - len(indent), break_long_words=False, break_on_hyphens=False)
        lines.append(begin + f"\n{indent}".join(wrapped).replace("\0", " "))
    return "\n".join(lines)


def _strip_lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def _move_link(match: re.Match[str]) -> str:
    """A link of a notebook, seen from the pages."""
    target, anchor = match[1], match[2] or ""
    if target.endswith(".ipynb"):
        return f"]({target.removesuffix('.ipynb')}.md{anchor})"
    return f"]({os.path.relpath(NOTEBOOKS / target, PAGES)}{anchor})"


if __name__ == "__main__":
    main()
