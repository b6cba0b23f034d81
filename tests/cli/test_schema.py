"""JSON Schema of files: the shipped files are valid, and typical mistakes are not."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from scalesearch.cli.schema import FILE_TYPES, json_schema
from tools.reference import SCHEMA_FOLDER

ROOT = Path(__file__).parents[2]
FILES = [(path, category.removesuffix("s") if category == "spaces" else "study")
         for category in ("spaces", "studies")
         for path in sorted((ROOT / category).rglob("*.yaml"))]


class Loader(yaml.SafeLoader):
    """Reads ``on`` and ``off`` as texts, like YAML 1.2."""

    yaml_implicit_resolvers = {first: resolvers for first, resolvers
                               in yaml.SafeLoader.yaml_implicit_resolvers.items()
                               if first not in ("o", "O")}


def validator(file_type: str) -> Any:
    return jsonschema.Draft7Validator(json_schema(file_type))


@pytest.mark.parametrize("file_type", ["space", "study"])
def test_shipped_files_are_valid_and_name_their_schema(file_type: str) -> None:
    checker = validator(file_type)
    for path, category in FILES:
        if category == file_type:
            text = path.read_text("utf-8")
            errors = [f"{path}: {error.json_path}: {error.message[:200]}"
                      for error in checker.iter_errors(yaml.load(text, Loader))]
            assert not errors, errors
            name = text.partition("\n")[0].removeprefix("# yaml-language-server: $schema=")
            assert (path.parent / name).resolve() == SCHEMA_FOLDER / f"{file_type}.json"


@pytest.mark.parametrize(("file_type", "text"), [
    ("study", "space: slim\nworkerz: 3"), ("study", "sampler: {type: tpe, seed: -1}"),
    ("study", "objectives: {bleu: most}"), ("recipe", "{steps: 5, schedule: cosin}"),
    ("recipe", "recipe: {stepz: 5}"), ("data", "{builtin: grammar, lowercase: 3}"),
    ("space", "encoder: {depht: 6}"), ("space", "width: [[1], 2, {a: 3}]\nwidht: 3"),
])
def test_mistakes_are_invalid(file_type: str, text: str) -> None:
    assert list(validator(file_type).iter_errors(yaml.safe_load(text)))


@pytest.mark.parametrize(("file_type", "text"), [
    ("recipe", "{steps: 10k, lr: 1e-3..8e-3 log, schedule: cosine | wsd}"),
    ("recipe", "recipe: {preset: quick, lr.base: 2e-3}"), ("data", "builtin: grammar"),
    ("data", "data: {source: en, target: de, train: [a, {source: x, target: y}]}"),
    ("study", "data: data.yaml\nrecipe: quick\ncompute: 20h\nseeds: 3\nwarm_start: [a, b]\n"
     "objectives: {bleu: max, params.total: min}"),
])
def test_short_forms_and_units_are_valid(file_type: str, text: str) -> None:
    assert not list(validator(file_type).iter_errors(yaml.safe_load(text)))


@pytest.mark.parametrize("file_type", FILE_TYPES)
def test_schemas_are_valid_schemas(file_type: str) -> None:
    jsonschema.Draft7Validator.check_schema(json_schema(file_type))
