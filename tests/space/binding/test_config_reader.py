"""Values in study, data and recipe files."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from scalesearch.data.spec import DATA_SCHEMA
from scalesearch.space.binding.config_reader import apply_override, read_constants
from scalesearch.space.schema.settings import NONE_TEXT
from scalesearch.space.schema.types import SchemaField, SchemaGroup
from scalesearch.space.syntax.diagnostics import SourcePosition, SourceText
from scalesearch.space.syntax.nodes import MappingNode
from scalesearch.study.config.spec import STUDY_SCHEMA
from scalesearch.train.recipe import RECIPE_SCHEMA


def shown_as_none(group: SchemaGroup, path: str) -> Iterator[tuple[str, SchemaField]]:
    """Fields whose default is ``none`` in the reference pages, with their paths."""
    for name, child in group.fields.items():
        if isinstance(child, SchemaGroup):
            yield from shown_as_none(child, f"{path}.{name}")
        elif child.default == NONE_TEXT:
            yield f"{path}.{name}", child


SHOWN = dict(pair
             for name, group in (("study", STUDY_SCHEMA), ("data", DATA_SCHEMA),
                                 ("recipe", RECIPE_SCHEMA)) for pair in shown_as_none(group, name))


@pytest.mark.parametrize("path", SHOWN)
def test_default_none_of_the_reference_pages_can_be_written(path: str) -> None:
    schema = SchemaGroup({"key": SHOWN[path]})
    empty = MappingNode(SourcePosition(SourceText("a test", ""), 1, 1, 1), ())
    values = read_constants(schema, apply_override(empty, schema, "key=none"))
    assert values.get("key") == (NONE_TEXT if NONE_TEXT in SHOWN[path].words else None)


def test_quoted_none_is_a_file_name() -> None:
    schema = replace(DATA_SCHEMA, check=lambda values: (), make=dict)
    table = apply_override(MappingNode(SourcePosition(SourceText("a test", ""), 1, 1, 1), ()),
                           schema, 'distilled=["none"]')
    assert read_constants(schema, table)["distilled"] == ("none",)
