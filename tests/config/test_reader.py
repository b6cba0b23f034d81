"""Values in study, data and recipe files."""

from collections.abc import Iterator

import pytest

from scalesearch.config.model import NONE_TEXT, Config, schema_of
from scalesearch.config.reader import ConfigReader, apply_override
from scalesearch.data.spec import DataSpec
from scalesearch.spaces.schema.types import SchemaGroup
from scalesearch.spaces.syntax.diagnostics import SourcePosition, SourceText
from scalesearch.spaces.syntax.nodes import MappingNode
from scalesearch.studies.config.spec import StudyFile
from scalesearch.training.recipe import Recipe

EMPTY = MappingNode(SourcePosition(SourceText("a test", ""), 1, 1, 1), ())


def shown_as_none(group: SchemaGroup, path: str = "") -> Iterator[str]:
    """Paths of keys whose default is ``none`` in the reference pages."""
    for name, child in group.fields.items():
        if isinstance(child, SchemaGroup):
            yield from shown_as_none(child, f"{path}{name}.")
        elif child.default == NONE_TEXT:
            yield path + name


@pytest.mark.parametrize(("model", "path"), [
    (model, path) for model in (StudyFile, DataSpec, Recipe)
    for path in shown_as_none(schema_of(model))])
def test_default_none_of_the_reference_pages_can_be_written(model: type[Config], path: str) -> None:
    reader = ConfigReader(model)
    reader.read(apply_override(EMPTY, schema_of(model), f"{path}=none"))
    assert not [problem for problem in reader.problems
                if problem.message.startswith((f"{path}:", "expected"))]


def test_quoted_none_is_a_file_name() -> None:
    reader = ConfigReader(DataSpec)
    table = apply_override(EMPTY, schema_of(DataSpec), 'distilled=["none"]')
    assert reader.values_of(DataSpec, table, "") == {"distilled": ["none"]}
    spec = DataSpec.from_mapping({"builtin": "grammar", "distilled": ["none"]})
    assert spec.distilled == ("none",)


@pytest.mark.parametrize("model", [StudyFile, DataSpec, Recipe])
def test_json_schema_describes_every_key(model: type[Config]) -> None:
    schema = model.model_json_schema()
    (mapping, *_) = schema.get("anyOf", [schema])
    assert mapping["properties"].keys() == schema_of(model).fields.keys()
    assert all("description" in key for key in mapping["properties"].values())
