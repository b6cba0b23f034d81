"""``scalesearch schema``: JSON Schema of files, for editors.

Values of the space language are texts, so an editor cannot check them; it completes their words.
"""

import json
from typing import Any

import click

from scalesearch.cli.options import print_json

FILE_TYPES = ("study", "space", "recipe", "data")
DIALECT = "http://json-schema.org/draft-07/schema#"
MIN_SHARED_LENGTH = 1000  # characters of a part that is written once
# Types of the values of a field, besides texts.
JSON_TYPES = {"size": ["integer"], "number": ["number"], "flag": ["boolean"], "list": ["array"],
              "schedule": ["array"]}
DOTTED_KEYS: dict[str, Any] = {r"^[^.]+\.": {}}  # `encoder.depth: 6`


@click.command(name="schema")
@click.argument("file_type", metavar="|".join(FILE_TYPES), type=click.Choice(FILE_TYPES))
def command(file_type: str) -> None:
    """Print the JSON Schema of study, space, recipe or data files.

    An editor with a YAML language server uses it for completion, help and validation.

    \b
    Example: scalesearch schema study > study.json
    """
    print_json(json_schema(file_type))


def json_schema(file_type: str) -> dict[str, Any]:
    """The JSON Schema of files of one of ``FILE_TYPES``."""
    title = {"$schema": DIALECT}
    if file_type == "space":
        return title | _share_parts(space_schema())
    if file_type == "study":
        from scalesearch.studies.config.spec import StudyFile

        return title | StudyFile.model_json_schema()
    from scalesearch.data.spec import DataSpec
    from scalesearch.training.recipe import Recipe

    schema = (Recipe if file_type == "recipe" else DataSpec).model_json_schema()
    definitions = schema.pop("$defs", {})
    section = {"type": "object", "required": [file_type], "properties": {file_type: schema}}
    # the keys are at the top of the file, or below the name of the section
    return title | {"$defs": definitions, "if": {"required": [file_type]}, "then": section,
                    "else": schema}


def space_schema() -> dict[str, Any]:
    """The JSON Schema of space files."""
    from scalesearch.spaces.schema.builtin import architecture_schema
    from scalesearch.spaces.schema.cost_names import PROTOCOL_CHOICES, PROTOCOL_SIZES

    schema = _group_schema(architecture_schema())["anyOf"][0]
    protocol: dict[str, Any] = {name: {"enum": list(names)}
                                for name, names in PROTOCOL_CHOICES.items()}
    protocol |= {name: {"type": ["integer", "string"]} for name in PROTOCOL_SIZES}
    schema["properties"] |= {
        "space": {"type": "string", "description": "name of the space"},
        "notes": {"type": "string", "description": "free text"},
        "where": {"type": "array", "items": {"type": "string"},
                  "description": "conditions over keys and costs that every candidate meets"},
        "cost": {"type": "object", "description": "protocol and named budgets", "properties": {
            "protocol": {"type": "object", "properties": protocol},
            "budgets": {"type": "object", "additionalProperties": {"type": "string"}}}}}
    result: dict[str, Any] = schema
    return result


def _share_parts(schema: dict[str, Any]) -> dict[str, Any]:
    """Write large parts that occur several times only once, such as keys of stacks."""
    definitions: dict[str, Any] = {}
    names: dict[str, str] = {}

    def share(part: Any) -> Any:
        if isinstance(part, list):
            return [share(item) for item in part]
        if not isinstance(part, dict):
            return part
        shared = {key: share(item) for key, item in part.items()}
        text = json.dumps(shared)
        if len(text) < MIN_SHARED_LENGTH or not isinstance(shared.get("anyOf"), list):
            return shared
        name = names.setdefault(text, f"part{len(names)}")
        definitions[name] = shared
        return {"$ref": f"#/$defs/{name}"}

    result: dict[str, Any] = {key: share(value) for key, value in schema.items()}
    return {"$defs": definitions, **result}


def _group_schema(group: Any) -> dict[str, Any]:
    """A mapping with the keys and variants of a group, or a text."""
    from scalesearch.spaces.binding.binder import ONE_OF_KEY
    from scalesearch.spaces.schema.type_check import describe_field
    from scalesearch.spaces.schema.types import SchemaGroup

    variants = {name: _group_schema(variant) for name, variant in group.variants.items()}
    keys: dict[str, Any] = {}
    for name, child in group.fields.items():
        if isinstance(child, SchemaGroup):
            keys[name] = _group_schema(child)
            continue
        # a constant, or a text of the space language
        words = [*child.words, *child.special_values,
                 *(child.calls if child.type == "schedule" else ())]
        types = JSON_TYPES.get(child.type, [])
        if child.layer_depth_key is not None:
            types = [*types, "array"]
        options: list[dict[str, Any]] = [{"enum": words}] if words else []
        unit = f" ({child.unit})" if child.unit else ""
        keys[name] = {"description": f"{child.doc}{unit}: {describe_field(child)}",
                      "anyOf": [*options, {"type": [*types, "string"]}]}
    names = {**keys, **variants}
    if variants:
        names[ONE_OF_KEY] = {"type": ["object", "string"], "properties": variants}
    mapping = {"type": "object", "properties": names, "patternProperties": DOTTED_KEYS,
               "additionalProperties": False}
    described = {"description": group.doc} if group.doc else {}
    return {**described, "anyOf": [mapping, {"enum": list(variants)}, {"type": "string"},
                                   {"type": "null"}]}
