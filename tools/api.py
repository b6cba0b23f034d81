"""Write the tables of the Python API into docs/reference/python.md, from docstrings.

    python tools/api.py            # --check: only report whether the page is current

A table is between the lines ``<!-- api: CLASS -->`` and ``<!-- end -->``.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from scalesearch.api.architecture import Architecture, Costs
from scalesearch.api.model import Model
from scalesearch.api.space import FeasibilityResult, SearchSpace, SolveResult
from scalesearch.api.study import Study

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
CLASSES = {kind.__name__: kind for kind in (SearchSpace, Architecture, Costs, FeasibilityResult,
                                            SolveResult, Model, Study)}
MARKED = re.compile(r"(<!-- api: (?P<name>\w+) -->\n\n).*?(\n<!-- end -->)", re.S)
ATTRIBUTE = re.compile(r"^(\w+): (.*(?:\n {4,}.*)*)", re.M)
VARIADIC = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def members(kind: type) -> Iterator[tuple[str, str]]:
    """Call or attribute, and meaning, of each public member of a class."""
    listed = set()
    _, _, attributes = (kind.__doc__ or "").partition("Attributes:\n")
    for name, meaning in ATTRIBUTE.findall(inspect.cleandoc(f"x\n{attributes}")):
        listed.add(name)
        yield name, " ".join(meaning.split())
    for name, member in inspect.getmembers(kind):
        if name.startswith("_") or name in listed:
            continue
        is_method = inspect.isfunction(member)
        meaning = (inspect.getdoc(member) or "").partition("\n\n")[0]
        if is_method or isinstance(member, property) or hasattr(member, "func"):
            yield (f"{name}({_arguments(member)})" if is_method else name), " ".join(
                meaning.split())
        else:
            yield name, ""


def _arguments(function: object) -> str:
    """Names of the arguments; keyword-only ones with an equals sign."""
    names = []
    for name, parameter in inspect.signature(function).parameters.items():  # type: ignore[arg-type]
        if name != "self":
            is_keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            names.append(VARIADIC.get(parameter.kind, "") + name + "=" * is_keyword)
    return ", ".join(names)


def table(kind: type) -> str:
    """Table of the members of a class."""
    rows = "".join(f"| `{call}` | {_plain(meaning)} |\n" for call, meaning in members(kind))
    return f"| member | meaning |\n|---|---|\n{rows}"


def _plain(text: str) -> str:
    """Convert the markup of a docstring to Markdown."""
    text = re.sub(r":\w+:`~?\.?([^`]*)`", r"`\1`", text)
    return re.sub(r"``([^`]*)``", r"`\1`", text).removesuffix(".").replace("|", "\\|")


def updated(text: str) -> str:
    """Text of the page with current tables."""
    return MARKED.sub(lambda match: match[1] + table(CLASSES[match["name"]]) + match[3], text)


def main() -> None:
    """Write the tables, or with --check report a stale page (exit status 1)."""
    text = PAGE.read_text("utf-8")
    if "--check" in sys.argv[1:]:
        is_stale = updated(text) != text
        print("stale; run python tools/api.py" if is_stale else "the page is current")
        raise SystemExit(is_stale)
    PAGE.write_text(updated(text), "utf-8")


if __name__ == "__main__":
    main()
