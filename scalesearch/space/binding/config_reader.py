"""Read study, recipe and data files by a schema: all values are constants."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from scalesearch.blocks.core import join_path
from scalesearch.errors import UserError
from scalesearch.space.binding.binder import Binder, rename_deprecated_keys
from scalesearch.space.schema.bound_tree import build_index
from scalesearch.space.schema.settings import NONE_TEXT
from scalesearch.space.schema.type_check import check_domain, describe_field
from scalesearch.space.schema.types import SchemaField, SchemaGroup
from scalesearch.space.syntax.diagnostics import (
    ConfigError,
    Problem,
    SourcePosition,
    SourceText,
    format_alternatives,
    suggest_match,
    warn_deprecated,
)
from scalesearch.space.syntax.domains import ConstantDomain, ListDomain
from scalesearch.space.syntax.lexer import ValueSyntaxError
from scalesearch.space.syntax.nodes import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    scalar_from_text,
)
from scalesearch.space.syntax.parameters import format_constant
from scalesearch.space.syntax.value_parser import parse_value
from scalesearch.space.syntax.yaml_reader import parse_yaml

NONE_TEXTS = (NONE_TEXT, "null", "~", "")


class ConfigReader:
    """Reads mappings of constants by a schema and collects all problems.

    Attributes:
        problems: the problems so far.
        positions: the position of the value of each key that is set, by dotted path.
    """

    def __init__(self, schema: SchemaGroup, name: str = "") -> None:
        """Create a reader; ``name`` is the subject of messages about the whole mapping."""
        self.schema = schema
        self.name = name
        self.binder = Binder(build_index(schema))
        self.binder.suggests_other_groups = False
        self.problems: list[Problem] = self.binder.problems
        self.positions: dict[str, SourcePosition] = {}

    def report_problem(self, node: Node | SourcePosition, message: str, help: str | None = None,
                       code: str = "bad-value") -> None:
        """Record a problem."""
        self.problems.append(Problem(node.display_position if isinstance(node, Node) else node,
                                     message, help, code=code))

    def read(self, node: Node) -> Any:
        """The object that the schema makes from ``node``; ``None`` if there are problems."""
        return self.read_group(self.schema, node, "")

    def read_group(self, group: SchemaGroup, node: Node, path: str) -> Any:
        """The object that ``group`` makes from the values of its keys."""
        if group.optional and isinstance(node,
                                         ScalarNode) and node.text and node.text in NONE_TEXTS:
            return None
        table = self.read_mapping(group, node, path)
        before = len(self.problems)
        if table is None:
            return None
        values = self.read_values(group, table, path)
        if len(self.problems) == before:
            for key, message, help in group.check(values):
                subject = (join_path(path, key) if key else path) or self.name
                place = self.positions.get(join_path(path, key)) or node.display_position
                self.report_problem(place, f"{subject}: {message}" if subject else message, help)
        if len(self.problems) > before:
            return None
        try:
            return group.make(**values)
        except UserError as error:
            return self.report_problem(node, error.message, error.help, code=error.code)

    def read_mapping(self, group: SchemaGroup, node: Node, path: str) -> MappingNode | None:
        """The mapping that ``node`` is or is short for."""
        if isinstance(node, ScalarNode) and not node.text and not group.shorthand_key:
            return MappingNode(node.position, ())
        if isinstance(node, MappingNode):
            return node
        if group.shorthand_key and type(node) is not Node:
            return MappingNode(node.position,
                               ((ScalarNode(node.position, group.shorthand_key), node),))
        description = f"`{node.text}`" if isinstance(node, ScalarNode) else "a list"
        help = f"its keys are {format_alternatives(group.fields)}"
        self.report_problem(
            node, f"{path or self.name}: expected a mapping, found {description}", help)
        return None

    def read_values(self, group: SchemaGroup, table: MappingNode, path: str) -> dict[str, Any]:
        """The valid values by key; reports invalid and missing ones."""
        values: dict[str, Any] = {}
        table = rename_deprecated_keys(table, group)
        if group.open_key and table.get(group.open_key):
            others = tuple((key, node) for key, node in table if key.text not in group.fields)
            table = replace(table, entries=tuple(entry for entry in table if entry not in others))
            values["arguments"] = {key.text: plain_value(node) for key, node in others}
        entries = self.binder.known_entries(group, table, path)
        for name, child in group.fields.items():
            inner = join_path(path, name)
            if name in entries:
                node = entries[name][1]
                if _is_default(child, node):
                    continue
                self.positions[inner] = node.display_position
                before = len(self.problems)
                value = (self.read_group(child, node, inner) if isinstance(child, SchemaGroup)
                         else self.read_value(child, node, inner))
                if len(self.problems) == before:
                    values[name] = value
            elif child.required if isinstance(child, SchemaGroup) else child.default is None:
                help = f"add `{name}:` with {describe_field(child)}" if isinstance(
                    child, SchemaField) else None
                self.report_problem(_first_character(table.position),
                                    f"`{inner}` is missing: {child.doc}", help, code="missing-key")
        return values

    def read_value(self, field: SchemaField, node: Node, path: str) -> Any:
        """The value of one key."""
        if field.items:
            items = node.items if isinstance(node, SequenceNode) else (node,)
            self.positions |= {f"{path}[{index}]": item.display_position
                               for index, item in enumerate(items)}
            return tuple(self.read_group(field.items, item, path) for item in items)
        if field.type == "node":
            return field.read(node, self.report_problem)
        if isinstance(node,
                      ScalarNode) and node.text in NONE_TEXTS and NONE_TEXT in field.special_values:
            return None
        return self.read_constant(field, node, path)

    def read_constant(self, field: SchemaField, node: Node, path: str) -> Any:
        """The constant that ``node`` contains."""
        if isinstance(node, SequenceNode | MappingNode):
            what = "a list" if isinstance(node, SequenceNode) else "a mapping"
            return self.report_problem(node,
                                       f"{path}: expected {describe_field(field)}, found {what}")
        if not isinstance(node, ScalarNode):
            return None  # already reported
        if field.type == "text":
            if not node.text:
                self.report_problem(node, f"{path}: expected {describe_field(field)}")
            return node.text or None

        def report_error(problem: ValueSyntaxError) -> None:
            self.report_problem(node.position_of(problem.span), f"{path}: {problem.message}",
                                problem.help, code=problem.code)

        try:
            domain = parse_value(node.text.removeprefix("+"))
        except ValueSyntaxError:
            return self.report_unexpected(field, node, path)
        if (isinstance(domain, ConstantDomain) and isinstance(domain.value, float)
                and field.type == "size" and domain.value.is_integer()):
            domain = replace(domain, value=int(domain.value))
        word = format_constant(domain.value) if isinstance(domain, ConstantDomain) else ""
        if word in field.deprecated_words and isinstance(domain, ConstantDomain):
            domain = replace(domain, value=field.deprecated_words[word])
            warn_deprecated(node.position, f"{path}: `{word}` is now `{domain.value}`")
            word = str(domain.value)
        wordy = field.type == "word" or (isinstance(domain, ConstantDomain)
                                         and isinstance(domain.value, str))
        if not isinstance(domain, ConstantDomain | ListDomain) or (
                wordy and word not in (*field.words, *field.special_values)):
            return self.report_unexpected(field, node, path)
        checked = check_domain(domain, field, (), report_error)
        if isinstance(checked, ListDomain):
            return checked.values
        return checked.value if isinstance(checked, ConstantDomain) else None

    def report_unexpected(self, field: SchemaField, node: ScalarNode, path: str) -> None:
        """Report a text that is not a value of ``field``."""
        words = (*field.words, *field.special_values)
        help = suggest_match(node.text, words) if words and field.type == "word" else None
        self.report_problem(node, f"{path}: expected {describe_field(field)}, found `{node.text}`",
                            help)


def _is_default(child: SchemaField | SchemaGroup, node: Node) -> bool:
    """Whether ``node`` is ``none``, the default of a text or a node in the reference."""
    return isinstance(child, SchemaField) and child.default == NONE_TEXT and child.type in (
        "text", "node") and is_none(node)


def is_none(node: Node) -> bool:
    """Whether a file sets a key to ``none``."""
    return isinstance(
        node, ScalarNode) and not node.is_quoted and node.text in NONE_TEXTS and node.text != ""


def plain_value(node: Node) -> Any:
    """A plain value without a schema: a number, yes or no, a text, or a list of these."""
    if isinstance(node, SequenceNode):
        return [plain_value(item) for item in node.items]
    if not isinstance(node, ScalarNode) or node.is_quoted:
        return node.text if isinstance(node, ScalarNode) else None
    try:
        spec = parse_value(node.text)
    except ValueSyntaxError:
        return node.text
    if node.text in NONE_TEXTS:
        return None
    return spec.value if isinstance(spec, ConstantDomain) else node.text


def _first_character(position: SourcePosition) -> SourcePosition:
    """The first character of ``position``: a missing key has no text to underline."""
    return replace(position, end=position.column + 1) if position.source.has_lines else position


def apply_override(table: MappingNode, schema: SchemaGroup, assignment: str,
                   option: str = "--set") -> MappingNode:
    """``table`` with an override such as ``recipe.steps=500`` of the option ``option``.

    Raises:
        UserError: ``assignment`` does not have the form ``key=value``.
    """
    path, equals, text = assignment.partition("=")
    if not equals or not path.strip():
        raise UserError(f"{option} {assignment}: write it as key=value", code="not-key-value")
    name = f"{option} {assignment}"
    value: Node | None = scalar_from_text(name, f"{path}=", text.strip())
    if text.strip().startswith(("[", "{")):
        value = parse_yaml(SourceText(name, f"value: {text}", has_lines=False))[0].get("value")
    assert value is not None
    place = scalar_from_text(name, "", assignment).position_of((0, len(path)))
    return _with(table, schema, path.strip().split("."), value, place)


def _with(table: MappingNode, schema: SchemaField | SchemaGroup | None, path: list[str],
          value: Node, place: SourcePosition) -> MappingNode:
    """``table`` with ``value`` at ``path``; the tail below a key without a schema is a name."""
    key = ScalarNode(place, path[0])
    child = None
    if isinstance(schema, SchemaGroup):
        ((key, _),) = rename_deprecated_keys(MappingNode(place, ((key, value),)), schema)
        table = rename_deprecated_keys(table, schema)
        child = schema.fields.get(key.text)
    inner = table.get(key.text)
    if len(path) > 1:
        short = isinstance(inner, SequenceNode) or (
            isinstance(inner, ScalarNode) and inner.text not in NONE_TEXTS)
        if inner and short and isinstance(child, SchemaGroup) and child.shorthand_key:
            inner = MappingNode(inner.position,
                                ((ScalarNode(inner.position, child.shorthand_key), inner),))
        within = inner if isinstance(inner, MappingNode) else MappingNode(value.position, ())
        tail = path[1:] if isinstance(child, SchemaGroup) else [".".join(path[1:])]
        value = _with(within, child, tail, value, place)
    entries = tuple((name, value if name.text == key.text else old) for name, old in table.entries)
    return replace(table, entries=entries if inner is not None else (*entries, (key, value)))


def flatten(mapping: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value with its dotted path, as in ``--set``."""
    for key, value in mapping.items():
        yield from flatten(value, join_path(path, key)) if isinstance(value, Mapping) else [
            (join_path(path, key), value)]


def with_position(error: UserError, positions: Mapping[str, SourcePosition]) -> UserError:
    """``error`` with file, line and column if its key is set in the file, otherwise unchanged."""
    key = error.key or ""
    while key and positions.get(key) is None:
        key = key.rpartition(".")[0]
    if not key or type(error) is not UserError:
        return error
    return ConfigError([Problem(positions[key], error.message, error.help, error.code)])


def to_node(name: str, value: Any, key: str = "") -> Node:
    """The node of a JSON-like value as if it were in a file; errors show it with ``name``."""
    if hasattr(value, "to_json"):
        return to_node(name, value.to_json(), key)
    if isinstance(value, Mapping):
        table = {scalar_from_text(name, "", str(inner)): to_node(name, item, str(inner))
                 for inner, item in value.items()}
        place = scalar_from_text(name, f"{key}: " if key else "",
                                 format_constant(dict(value)) if value else "{}").position
        return MappingNode(place, tuple(table.items()))
    text = scalar_from_text(name, f"{key}: " if key else "",
                            NONE_TEXT if value is None else format_constant(value))
    if isinstance(value, list | tuple):
        return SequenceNode(text.position, tuple(to_node(name, item, key) for item in value))
    return text


def coerce_settings(instance: Any, schema: SchemaGroup, name: str) -> None:
    """Validate and convert the fields of ``instance``, a frozen dataclass of ``schema``.

    Raises:
        ConfigError: with the problems of all fields.
    """
    values = {key: getattr(instance, key)
              for key in schema.fields if getattr(instance, key) not in (None, ())}
    values |= {key: None
               for key, field in schema.fields.items()
               if key not in values and not _may_be_none(field)}
    for key, value in read_constants(replace(schema, make=dict), to_node(name, values)).items():
        object.__setattr__(instance, key, value)


def _may_be_none(field: SchemaField | SchemaGroup) -> bool:
    return isinstance(field, SchemaGroup) or field.default == NONE_TEXT


def read_constants(schema: SchemaGroup, node: Node) -> Any:
    """The object that ``schema`` makes from ``node``. Raises ConfigError."""
    reader = ConfigReader(schema)
    settings = reader.read(node)
    if reader.problems:
        raise ConfigError(reader.problems)
    return settings
