"""Run the notebooks in docs/notebooks, and store the outputs of their cells.

    python tools/notebooks.py [NAME…]           # default: all notebooks
    python tools/notebooks.py --pages           # only write the Markdown pages of the site

The cells of a notebook run in one namespace, in an empty folder. Jupyter is not needed. Tests run
the notebooks without writing.
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"
FIGURES = ROOT / "docs" / "figures"


def read(file: Path) -> dict[str, Any]:
    """Read a notebook as JSON values."""
    notebook: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return notebook


def run(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Run the code cells of ``notebook`` in order; yield each with its outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                value = _value_of("".join(cell["source"]), names)
            stream = [{"name": "stdout", "output_type": "stream",
                       "text": _lines(printed.getvalue())}]
            yield cell, stream * bool(printed.getvalue()) + (
                [] if value is None else [_shown(value)])


def _value_of(code: str, names: dict[str, Any]) -> Any:
    """Run ``code``; return the value of its last statement if it is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last else None


def _shown(value: Any) -> dict[str, Any]:
    """Convert a value to a cell output: text, and HTML and image if available."""
    data: dict[str, Any] = {"text/plain": _lines(repr(value))}
    if hasattr(value, "_repr_html_") and (page := value._repr_html_()):
        data["text/html"] = _lines(page)
    if hasattr(value, "_repr_png_"):
        data["image/png"] = base64.b64encode(value._repr_png_()).decode()
    return {"data": data, "metadata": {}, "output_type": "execute_result"}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def page(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """Markdown of a notebook with its saved outputs, and its images by file name."""
    mark = f"<!-- no run: a cell of docs/notebooks/{name}.ipynb, which tests run -->"
    parts = []
    images: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).rstrip("\n")
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"{mark}\n```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "image/png" in data:
                image = f"notebook-{name}-{len(images) + 1}.png"
                images[image] = base64.b64decode(data["image/png"])
                parts.append(f"![Figure of the cell above](../figures/{image})")
            else:
                text = "".join(data["text/plain"]).rstrip("\n")
                parts.append(f"{mark}\n```text\n{text}\n```")
    source_note = f"This page shows `docs/notebooks/{name}.ipynb`, which runs without Jupyter."
    heading, _, introduction = parts[0].partition("\n")
    return "\n\n".join([heading, source_note, introduction.strip(), *parts[1:]]) + "\n", images


def pages() -> dict[Path, bytes]:
    """Files of the site and their contents: a page per notebook, and its images."""
    files = {}
    for file in sorted(FOLDER.glob("*.ipynb")):
        text, images = page(read(file), file.stem)
        files[FOLDER / f"{file.stem}.md"] = text.encode()
        files |= {FIGURES / name: content for name, content in images.items()}
    return files


def write_pages() -> None:
    """Write the pages of the site."""
    for file, content in pages().items():
        file.write_bytes(content)


def main(names: list[str]) -> None:
    """Write the outputs of the notebooks ``names``, and all pages."""
    from scalesearch.files import write_text

    if names == ["--pages"]:
        write_pages()
        return
    os.environ["COLUMNS"] = "160"  # width of tables without a terminal
    for file in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        notebook = read(file)
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            for count, (cell, outputs) in enumerate(run(notebook), 1):
                numbered = [{"execution_count": count, **output} if "data" in output else output
                            for output in outputs]
                cell |= {"execution_count": count, "outputs": numbered}
        write_text(file, json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    write_pages()


if __name__ == "__main__":
    main(sys.argv[1:])
