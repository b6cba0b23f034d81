"""Values of study, data and recipe files."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from scalesearch.data.spec import DATA_SCHEMA
from scalesearch.space.binding.constants import override, read_constants
from scalesearch.space.schema.settings import OPTIONAL
from scalesearch.space.schema.types import Field, Group
from scalesearch.space.syntax.diagnostics import Place, Source
from scalesearch.space.syntax.nodes import Table
from scalesearch.study.config.spec import STUDY
from scalesearch.train.recipe import RECIPE_SCHEMA


def shown_as_none(group: Group, path: str) -> Iterator[tuple[str, Field]]:
    """Fields whose pages of reference say ``none`` under "default", by their paths."""
    for name, child in group.fields.items():
        if isinstance(child, Group):
            yield from shown_as_none(child, f"{path}.{name}")
        elif child.default == OPTIONAL:
            yield f"{path}.{name}", child


SHOWN = dict(pair for name, group in (("study", STUDY), ("data", DATA_SCHEMA), ("recipe", RECIPE_SCHEMA))
             for pair in shown_as_none(group, name))


@pytest.mark.parametrize("path", SHOWN)
def test_the_default_that_pages_of_reference_show_may_be_written(path: str) -> None:
    schema = Group({"key": SHOWN[path]})
    empty = Table(Place(Source("a test", ""), 1, 1, 1), ())
    found = read_constants(schema, override(empty, schema, "key=none"))
    assert found.get("key") == (OPTIONAL if OPTIONAL in SHOWN[path].words else None)


def test_a_file_may_be_called_none_in_quotes() -> None:
    schema = replace(DATA_SCHEMA, check=lambda values: (), make=dict)
    table = override(Table(Place(Source("a test", ""), 1, 1, 1), ()), schema, 'distilled=["none"]')
    assert read_constants(schema, table)["distilled"] == ("none",)
