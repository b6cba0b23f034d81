"""Write docs/reference and docs/schemas: the keys of spaces, study files, recipes and data files.

    python tools/reference.py            # --check: only report whether the files are current
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from scalesearch.cli.schema import FILE_TYPES, json_schema
from scalesearch.config.model import schema_of
from scalesearch.data.spec import DataSpec
from scalesearch.spaces.schema.builtin import architecture_schema
from scalesearch.spaces.schema.cost_names import COST_NAMES, PROTOCOL_NAMES
from scalesearch.spaces.schema.type_check import describe_field
from scalesearch.spaces.schema.types import SchemaField, SchemaGroup
from scalesearch.studies.config.spec import StudyFile
from scalesearch.training.recipe import PRESETS, Recipe

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
SCHEMA_FOLDER = FOLDER.parent / "schemas"  # JSON Schema, for editors
OF_A_SPACE = """\
A size in a stack may differ by layer: [a list or a ramp](../guides/sizes-by-layer.md) in place of one value.
A value is a constant, alternatives (`64 | 128`), a range (`1..8 step 2`, `1..8 log`), or computed (`= 4 * width`), each
also under a condition (`2 | 3 if length > 1 else 1`). Besides the keys below, a file has `space` (its name), `notes`,
`where` (a list of conditions over keys and costs) and `cost` (`protocol` and named `budgets`). Costs are
"""
PAGES = {"space-language": ("Space language",
                            OF_A_SPACE + ", ".join(f"`{name}`" for name in COST_NAMES)
                            + "; protocols are " + ", ".join(f"`{name}`" for name in PROTOCOL_NAMES)
                            + ".", architecture_schema),
         "study-file": ("Study file",
                        "`data` and `recipe` hold the "
                        "keys of a [data file](data-file.md) and of a [recipe](recipe.md), `space` "
                        "those of the [space language](space-language.md).", lambda: schema_of(StudyFile)),
         "recipe": ("Recipe",
                    "A preset's name, or keys that override those of `preset: NAME`. Presets: "
                    + ", ".join(f"`{name}`" for name in PRESETS) + ".", lambda: schema_of(Recipe)),
         "data-file": ("Data file", "Keys at the top of the file, or beneath `data:`.",
                       lambda: schema_of(DataSpec))}
ELSEWHERE = {"data": schema_of(DataSpec), "recipe": schema_of(Recipe)}  # schemas with a page of their own


def page(name: str) -> str:
    """The text of one page."""
    title, words, schema = PAGES[name]
    note = "Written by `python tools/reference.py` from the schema that reads the file."
    head = [f"# {title}", "", note, "", words, "",
            "| key | meaning | values | unit | default | elsewhere called |",
            "|---|---|---|---|---|---|"]
    return "\n".join(
        [*head, *(" | ".join(["", *map(_cell, row), ""]).strip() for row in rows(schema()))]) + "\n"


def rows(group: SchemaGroup, path: str = "") -> Iterator[tuple[str, ...]]:
    """Each key beneath ``group``: key, meaning, values, unit, default, synonyms."""
    for name, child in group.fields.items():
        here = f"{path}.{name}" if path else name
        if isinstance(child, SchemaField):
            yield _field(here, child)
            yield from rows(child.items, f"{here}[]") if child.items else ()
            continue
        choice = (f"one of {_words(child.variants)}" if child.variants else "keys"
                  if not child.shorthand_key else f"keys; in short, its `{child.shorthand_key}`")
        default = child.default_variant or ("must be given" if child.required else "none"
                                            if child.optional else "")
        yield f"`{here}`", child.doc, choice, "", _default(default), _words(child.synonyms)
        yield from rows(child, here) if path or ELSEWHERE.get(name) is None else ()
    for name, variant in group.variants.items():
        inner = f"{path}.{name}"
        yield f"`{inner}`", variant.doc, "keys" if variant.fields else "", "", "", ""
        yield from rows(variant, inner)


def _field(path: str, field: SchemaField) -> tuple[str, ...]:
    default = ("may be left out" if field.optional
               else "must be given") if field.default is None else field.default
    return f"`{path}`", field.doc, describe_field(field), field.unit, _default(default), _words(
        field.synonyms)


def _default(text: str) -> str:
    """A value as code; words about it as they are."""
    return f"`{text}`" if text and (" " not in text or text[0] in "=[") else text


def _words(words: object) -> str:
    return ", ".join(f"`{word}`" for word in words)  # type: ignore[attr-defined]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def files() -> dict[Path, str]:
    """The generated files and their contents."""
    pages = {FOLDER / f"{name}.md": page(name) for name in PAGES}
    schemas = {SCHEMA_FOLDER / f"{name}.json": json.dumps(json_schema(name)) + "\n"
               for name in FILE_TYPES}
    return {**pages, **schemas}


def stale() -> list[str]:
    """Names of the files that differ from the schemas."""
    return [file.name for file, text in files().items()
            if not file.is_file() or file.read_text("utf-8") != text]


def main() -> None:
    """Write the files; with --check, report the stale ones (exit status 1)."""
    if "--check" in sys.argv[1:]:
        names = stale()
        print(f"stale: {', '.join(names)}; run python tools/reference.py" if names
              else "the files are current")
        raise SystemExit(bool(names))
    for file, text in files().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
