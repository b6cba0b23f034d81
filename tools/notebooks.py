"""Runs the notebooks in docs/notebooks and writes what their cells show into them; needs no Jupyter.

    python tools/notebooks.py [NAME…]           # all of them, if none is named

The cells of a notebook run in one namespace, in an empty folder. Tests run them too, and write
nothing.
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


def read(file: Path) -> dict[str, Any]:
    """A notebook, as JSON values."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def run(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Runs the code cells of ``notebook`` here, in order; yields each with its outputs."""
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
    """Runs ``code``; the value of its last line, where that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last else None


def _shown(value: Any) -> dict[str, Any]:
    """A value as a notebook holds it: its text, and its HTML or picture where it has one."""
    data: dict[str, Any] = {"text/plain": _lines(repr(value))}
    if hasattr(value, "_repr_html_") and (page := value._repr_html_()):
        data["text/html"] = _lines(page)
    if hasattr(value, "_repr_png_"):
        data["image/png"] = base64.b64encode(value._repr_png_()).decode()
    return {"data": data, "metadata": {}, "output_type": "execute_result"}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(names: list[str]) -> None:
    """Writes the outputs of the notebooks ``names``."""
    from scalesearch.files import write_text

    os.environ["COLUMNS"] = "160"  # tables are as wide as the terminal, and these have none
    for file in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        notebook = read(file)
        with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
            for count, (cell, outputs) in enumerate(run(notebook), 1):
                numbered = [{"execution_count": count, **one} if "data" in one else one
                            for one in outputs]
                cell |= {"execution_count": count, "outputs": numbered}
        write_text(file, json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
