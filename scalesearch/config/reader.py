"""Read settings from YAML nodes by a model.

Report all problems with their positions.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch
from typing import Annotated, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from scalesearch.blocks.core import join_path
from scalesearch.config.model import (
    NONE_TEXT,
    NONE_TEXTS,
    OPEN_ARGUMENTS,
    Config,
    FileText,
    NodeValue,
    SettingError,
    inspect_field,
    is_list,
    keys_of,
    schema_of,
)
from scalesearch.errors import UserError, option
from scalesearch.spaces.binding.binder import rename_deprecated_keys
from scalesearch.spaces.binding.unknown_keys import suggest_key
from scalesearch.spaces.schema.bound_tree import build_index
from scalesearch.spaces.schema.type_check import describe_field
from scalesearch.spaces.schema.types import SchemaField, SchemaGroup
from scalesearch.spaces.syntax.diagnostics import (
    MAX_PROBLEMS_SHOWN,
    ConfigError,
    Problem,
    SourcePosition,
    SourceText,
    format_alternatives,
    suggest_match,
)
from scalesearch.spaces.syntax.lexer import DECIMAL_COMMA
from scalesearch.spaces.syntax.nodes import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    scalar_from_text,
    unfold_dotted_keys,
)
from scalesearch.spaces.syntax.parameters import format_constant
from scalesearch.spaces.syntax.yaml_reader import parse_yaml

Model = TypeVar("Model", bound=Config)


class ConfigReader:
    """Convert nodes to values of a model, and errors to problems with positions.

    Attributes:
        problems: the problems so far.
        positions: the position of the value of each key that is set, by dotted path.
        nodes: the node of each value, and ``keys`` the node of each key, by dotted path.
    """

    def __init__(self, model: type[Config], name: str = "") -> None:
        """Create a reader; ``name`` is the subject of messages about the whole mapping."""
        self.model = model
        self.name = name
        self.problems: list[Problem] = []
        self.positions: dict[str, SourcePosition] = {}
        self.nodes: dict[str, Node] = {}
        self.keys: dict[str, ScalarNode] = {}

    def report_problem(self, node: Node | SourcePosition, message: str, help: str | None = None,
                       code: str = "bad-value") -> None:
        """Record a problem."""
        self.problems.append(Problem(node.display_position if isinstance(node, Node) else node,
                                     message, help, code=code))

    def read(self, node: Node) -> Any:
        """The model of ``node``; ``None`` if there are problems."""
        n_problems = len(self.problems)
        try:
            config = self.model.model_validate(self.values_of(self.model, node, ""))
        except ValidationError as error:
            self.add_errors(error)
            return None
        return config if len(self.problems) == n_problems else None

    def read_valid_keys(self, node: MappingNode) -> dict[str, Any]:
        """The valid values of the keys of a mapping by field; reports the invalid ones."""
        values = self.values_of(self.model, node, "")
        try:
            config = self.model.model_validate(values)
        except ValidationError as error:
            self.add_errors(error)
            invalid = {item["loc"][0] for item in error.errors(include_url=False) if item["loc"]}
            names = {id(info): name for name, info in self.model.model_fields.items()}
            valid = {}
            for key, info in keys_of(self.model).items():
                if key in values and key not in invalid:
                    annotation: Any = info.annotation
                    if info.metadata:
                        annotation = Annotated[annotation, *info.metadata]
                    valid[names[id(info)]] = TypeAdapter(annotation).validate_python(values[key])
            return valid
        return {name: getattr(config, name) for name in config.model_fields_set}

    def values_of(self, model: type[Config], node: Node, path: str) -> Any:
        """The values of a mapping by key, ready for ``model``; other nodes as they are."""
        self.nodes.setdefault(path, node)
        if isinstance(node, ScalarNode) and not node.text and not model.shorthand_key:
            return {}
        if not isinstance(node, MappingNode):
            return self.plain(node, path)
        values: dict[str, Any] = {}
        fields = keys_of(model)
        node = rename_deprecated_keys(node, schema_of(model))
        arguments: dict[str, Any] = {}
        if model.open_key is not None and node.get(model.open_key):
            values[OPEN_ARGUMENTS] = arguments
        for key, value in unfold_dotted_keys(node, self.problems):
            inner = join_path(path, key.text)
            self.keys[inner] = key
            info = fields.get(key.text)
            if info is None:
                target = arguments if OPEN_ARGUMENTS in values else values
                target[key.text] = self.plain(value, inner)
                continue
            is_optional, child, metadata = inspect_field(info)
            schema = schema_of(model).fields[key.text]
            if is_none(value) and isinstance(schema, SchemaField) and (
                    schema.default == NONE_TEXT and schema.type in ("text", "node")):
                continue  # like a missing key
            self.nodes[inner] = value
            self.positions[inner] = value.display_position
            if is_optional and (is_none(value) or (child is None and is_empty(value))):
                values[key.text] = None
            elif child is not None and is_list(info):
                items = value.items if isinstance(value, SequenceNode) else (value,)
                values[key.text] = []
                for index, item in enumerate(items):
                    self.positions[f"{inner}[{index}]"] = item.display_position
                    values[key.text].append(self.values_of(child, item, f"{inner}[{index}]"))
            elif child is not None:
                values[key.text] = self.values_of(child, value, inner)
            else:
                is_node = any(isinstance(item, NodeValue) for item in metadata)
                values[key.text] = value if is_node else self.plain(value, inner)
        return values

    def plain(self, node: Node, path: str) -> Any:
        """The texts of a node in lists and dictionaries."""
        self.nodes.setdefault(path, node)
        if isinstance(node, ScalarNode):
            return FileText.of(node)
        if isinstance(node, SequenceNode):
            return [self.plain(item, f"{path}[{index}]") for index, item in enumerate(node.items)]
        if isinstance(node, MappingNode):
            for key, _ in node:
                self.keys.setdefault(join_path(path, key.text), key)
            return {key.text: self.plain(value, join_path(path, key.text)) for key, value in node}
        return node  # already reported

    def add_errors(self, error: ValidationError) -> None:
        """Add the errors of a model as problems with positions."""
        for item in error.errors(include_url=False):
            path = ""
            for part in item["loc"]:
                path = f"{path}[{part}]" if isinstance(part, int) else join_path(path, str(part))
            if type(item["input"]) is not Node:
                self.add_error(item, path)

    def add_error(self, error: Any, path: str) -> None:
        """Add one error of a model at ``path``."""
        parent, _, name = path.rpartition(".")
        group, field = self.find_schema(path)
        cause = error.get("ctx", {}).get("error")
        if isinstance(cause, SettingError):
            is_value = isinstance(field, SchemaField)
            for problem in cause.problems:
                inner = join_path(path, problem.key) if problem.key else path
                node = self.node_at(inner if inner in self.positions or is_value else path)
                if problem.at_key and inner in self.keys:
                    node = self.keys[inner]
                elif problem.at_key and isinstance(node, MappingNode):  # the only item of a list
                    node = next((key for key, _ in node if key.text == problem.key), node)
                subject = "" if is_value else re.sub(r"\[\d+\]", "", inner) or self.name
                prefix = f"{subject}: "
                message = problem.message.removeprefix(prefix)
                self.report_problem(node, f"{prefix}{message}" if subject else message,
                                    problem.help, problem.code)
        elif isinstance(cause, Exception):
            self.report_problem(self.node_at(path), str(cause))
        elif error["type"] == "extra_forbidden":
            # a suggestion takes milliseconds
            suggestion = None if len(self.problems) > MAX_PROBLEMS_SHOWN else suggest_key(
                name, group, parent, list(group.fields), build_index(schema_of(self.model)), False)
            where = f" in `{parent}`" if parent else ""
            key = self.keys.get(path)
            self.report_problem(key.position if key else self.node_at(parent),
                                f"unknown key `{name}`{where}", suggestion, code="unknown-key")
        elif error["type"] == "missing":
            assert field is not None
            addition = (f"add `{name}:` with {describe_field(field)}"
                        if isinstance(field, SchemaField) else None)
            position = self.node_at(parent).position
            if position.source.has_lines:  # a missing key has no text to underline
                position = replace(position, end=position.column + 1)
            self.report_problem(position, f"`{path}` is missing ({field.doc})", addition,
                                code="missing-key")
        else:
            self.add_value_error(error, path, field)

    def add_value_error(self, error: Any, path: str,
                        field: SchemaField | SchemaGroup | None) -> None:
        """Add the error of a value with another type or out of its bounds."""
        node = self.node_at(path)
        actual = (f"`{node.text}`" if isinstance(node, ScalarNode) else "a list"
                 if isinstance(node, SequenceNode) else "a mapping")
        if not isinstance(field, SchemaField):
            keys = (field or schema_of(self.model)).fields
            self.report_problem(node, f"{path or self.name}: expected a mapping, found {actual}",
                                f"its keys are {format_alternatives(keys)}")
            return
        expected = describe_field(field)
        help = None
        if isinstance(node, ScalarNode) and field.type == "word":
            help = field.foreign_words.get(node.text.lower()) or suggest_match(
                node.text, (*field.words, *field.special_values))
        if isinstance(node, ScalarNode) and field.type == "number" and node.text.count(
                ",") == 1 and DECIMAL_COMMA.match(node.text):
            help = f"write `{node.text.replace(',', '.')}`, with a decimal point"
        if error["type"] in ("greater_than", "greater_than_equal", "less_than_equal") and (
                isinstance(node, ScalarNode)):
            position = node.position_of((0, len(node.text)))
            self.report_problem(position,
                                f"{path}: {node.text} is out of bounds: expected {expected}")
            return
        self.report_problem(node, f"{path}: expected {expected}"
                            + (f", found {actual}" if actual != "``" else ""), help)

    def node_at(self, path: str) -> Node:
        """The node at ``path``, or at the innermost key around it that is set."""
        while path not in self.nodes:
            path = path[:max(path.rfind("."), path.rfind("["), 0)]
        return self.nodes[path]

    def find_schema(self, path: str) -> tuple[SchemaGroup, SchemaField | SchemaGroup | None]:
        """The group around ``path``, and the schema of its last key if there is one."""
        group = schema_of(self.model)
        child: SchemaField | SchemaGroup | None = group if not path else None
        for name in path.split(".") if path else ():
            child = group.fields.get(name.partition("[")[0])
            if isinstance(child, SchemaField) and child.items:
                child = child.items
            if isinstance(child, SchemaGroup) and name != path.rpartition(".")[2]:
                group = child
        return group, child


def read_config(model: type[Model], node: Node) -> Model:
    """The object of ``model`` that ``node`` describes. Raises ConfigError."""
    reader = ConfigReader(model)
    config: Model = reader.read(node)
    if reader.problems:
        raise ConfigError(reader.problems)
    return config


def python_error(model: type[Config], values: Mapping[str, Any],
                 error: ValidationError) -> ConfigError:
    """The error of the constructor of ``model`` with the keyword arguments ``values``."""
    names = {name: info.validation_alias or name for name, info in model.model_fields.items()}
    settings = {names.get(name, name): value for name, value in values.items()
             if value not in (None, ()) or name not in names or not inspect_field(
                 model.model_fields[name])[0]}
    reader = ConfigReader(model, model.section)
    reader.values_of(model, to_node(model.section, settings), "")
    reader.problems.clear()
    reader.add_errors(error)
    return ConfigError(reader.problems)


@singledispatch
def file_value(value: object) -> Any:
    """The value of a key as in a file: a constant, a list or a mapping.

    Types with another form in files register it here.
    """
    return value


@file_value.register
def _config_value(value: Config) -> Any:
    return value.model_dump()


def to_node(name: str, value: object, key: str = "") -> Node:
    """The node of a JSON-like value as if it were in a file.

    Errors show it with ``name``.
    """
    value = file_value(value)
    if isinstance(value, Mapping):
        table = {scalar_from_text(name, "", str(inner)): to_node(name, item, str(inner))
                 for inner, item in value.items()}
        position = scalar_from_text(name, f"{key}: " if key else "",
                                    format_constant(dict(value)) if value else "{}").position
        return MappingNode(position, tuple(table.items()))
    text = scalar_from_text(name, f"{key}: " if key else "",
                            NONE_TEXT if value is None else format_constant(value))
    if isinstance(value, list | tuple):
        return SequenceNode(text.position, tuple(to_node(name, item, key) for item in value))
    return text


def apply_override(table: MappingNode, schema: SchemaGroup, assignment: str) -> MappingNode:
    """``table`` with an override such as ``recipe.steps=500``, set by the option ``--set``.

    Raises:
        UserError: ``assignment`` does not have the form ``key=value``.
    """
    path, equals, text = assignment.partition("=")
    if not equals or not path.strip():
        raise UserError(f"{option('set', assignment)}: write it as key=value", code="not-key-value")
    name = option("set", assignment)
    value: Node | None = scalar_from_text(name, f"{path}=", text.strip())
    if text.strip().startswith(("[", "{")):
        value = parse_yaml(SourceText(name, f"value: {text}", has_lines=False))[0].get("value")
    assert value is not None
    position = scalar_from_text(name, "", assignment).position_of((0, len(path)))
    return _with_value(table, schema, path.strip().split("."), value, position)


def _with_value(table: MappingNode, schema: SchemaField | SchemaGroup | None, path: list[str],
                value: Node, position: SourcePosition) -> MappingNode:
    """``table`` with ``value`` at ``path``.

    The tail below a key without a schema is a name.
    """
    key = ScalarNode(position, path[0])
    child = None
    if isinstance(schema, SchemaGroup):
        ((key, _),) = rename_deprecated_keys(MappingNode(position, ((key, value),)), schema)
        table = rename_deprecated_keys(table, schema)
        child = schema.fields.get(key.text)
    inner = table.get(key.text)
    if len(path) > 1:
        is_short = isinstance(inner, SequenceNode) or (
            isinstance(inner, ScalarNode) and inner.text not in NONE_TEXTS)
        if inner and is_short and isinstance(child, SchemaGroup) and child.shorthand_key:
            inner = MappingNode(inner.position,
                                ((ScalarNode(inner.position, child.shorthand_key), inner),))
        within = inner if isinstance(inner, MappingNode) else MappingNode(value.position, ())
        tail = path[1:] if isinstance(child, SchemaGroup) else [".".join(path[1:])]
        value = _with_value(within, child, tail, value, position)
    entries = tuple((name, value if name.text == key.text else old) for name, old in table.entries)
    return replace(table, entries=entries if inner is not None else (*entries, (key, value)))


def is_none(node: Node) -> bool:
    """Whether a file sets a key to ``none``."""
    return isinstance(node, ScalarNode) and bool(node.text) and FileText.of(node).is_none


def is_empty(node: Node) -> bool:
    """Whether a file has no value for a key."""
    return isinstance(node, ScalarNode) and not node.text and not node.is_quoted


def with_position(error: UserError, positions: Mapping[str, SourcePosition]) -> UserError:
    """``error`` with file, line and column if its key is set in the file."""
    key = error.key or ""
    while key and positions.get(key) is None:
        key = key.rpartition(".")[0]
    if not key or type(error) is not UserError:
        return error
    return ConfigError([Problem(positions[key], error.message, error.help, error.code)])
