"""Values in study, data and recipe files."""

from collections.abc import Iterator

import pytest

from scalesearch.config.model import NONE_TEXT, Config, schema_of
from scalesearch.config.reader import ConfigReader, apply_override
from scalesearch.data.spec import DataSpec
from scalesearch.spaces.schema.type_check import lower_bound
from scalesearch.spaces.schema.types import SchemaGroup
from scalesearch.spaces.syntax.diagnostics import SourcePosition, SourceText
from scalesearch.spaces.syntax.nodes import MappingNode
from scalesearch.studies.config.spec import StudyFile
from scalesearch.training.recipe import BUDGET_KEYS, Recipe

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


def numeric_bounds(group: SchemaGroup, path: str = "") -> Iterator[tuple[str, str]]:
    """Paths of numbers with each bound that the reference pages show as a legal value."""
    for name, child in group.fields.items():
        if isinstance(child, SchemaGroup):
            yield from numeric_bounds(child, f"{path}{name}.")
        elif child.type in ("size", "number"):
            low = None if child.excludes_low else lower_bound(child)
            yield from ((path + name, f"{bound:.12g}") for bound in (low, child.high)
                        if bound is not None)


NEEDED_KEYS = {
    Recipe: ("epochs=5",), DataSpec: ("builtin=grammar", "task=language-model"),
    StudyFile: ("data.builtin=grammar", "data.task=language-model", "recipe.epochs=5",
                "objectives.params.total=min", "sampler.type=nsga2", "warm_start.from=a",
                *(f"{name}.{key}" for name in ("teacher", "parent")
                  for key in ("file=a", "recipe.epochs=5")))}
OF_ANOTHER_TASK_OR_SAMPLER = ("target_vocab", "max_ratio", "max_in_training")


@pytest.mark.parametrize("model", NEEDED_KEYS)
def test_bounds_of_the_reference_pages_are_legal(model: type[Config]) -> None:
    schema = schema_of(model)
    table = EMPTY
    for assignment in NEEDED_KEYS[model]:
        table = apply_override(table, schema, assignment)
    problems = []
    for path, bound in numeric_bounds(schema):
        reader = ConfigReader(model)
        reader.read(apply_override(table, schema, f"{path}={bound}"))
        if not path.endswith(OF_ANOTHER_TASK_OR_SAMPLER):
            problems += [(path, bound, problem.message) for problem in reader.problems]
    assert not problems


@pytest.mark.parametrize(("path", "bound"), [
    *((key, "0") for key in BUDGET_KEYS), ("rungs.first", "0"), ("rungs.spacing", "1")])
def test_a_bound_that_is_not_legal_is_not_part_of_the_range(path: str, bound: str) -> None:
    model = Recipe if path in BUDGET_KEYS else StudyFile
    reader = ConfigReader(model)
    reader.read(apply_override(EMPTY, schema_of(model), f"{path}={bound}"))
    (message,) = [problem.message for problem in reader.problems
                  if problem.message.startswith(f"{path}:")]
    assert message.startswith(f"{path}: {bound} is out of bounds: expected a")


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
