"""Files of constants: study files, recipes and data files, read by a schema as a space is, with the same errors."""

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
from scalesearch.space.syntax.nodes import MappingNode, Node, ScalarNode, SequenceNode, scalar_from_text
from scalesearch.space.syntax.parameters import format_constant
from scalesearch.space.syntax.value_parser import parse_value
from scalesearch.space.syntax.yaml_reader import parse_yaml

NONE_TEXTS = (NONE_TEXT, "null", "~", "")


class ConfigReader:
    """Reads mappings of constants by a schema, and keeps every problem until all are found.

    Attributes:
        problems: what is wrong so far.
        places: where the value of each key stands that is given, by dotted path.
    """

    def __init__(self, schema: SchemaGroup, name: str = "") -> None:
        """``name``: the subject of messages about the mapping itself."""
        self.schema = schema
        self.name = name
        self.binder = Binder(build_index(schema))
        self.binder.suggests_other_groups = False
        self.problems: list[Problem] = self.binder.problems
        self.positions: dict[str, SourcePosition] = {}

    def report_problem(self, node: Node | SourcePosition, message: str, help: str | None = None,
                       code: str = "bad-value") -> None:
        """Notes a problem."""
        self.problems.append(Problem(node.display_position if isinstance(node, Node) else node,
                                     message, help, code=code))

    def read(self, node: Node) -> Any:
        """What the schema makes of ``node``; ``None`` where that cannot be said for its problems."""
        return self.read_group(self.schema, node, "")

    def read_group(self, group: SchemaGroup, node: Node, path: str) -> Any:
        """What ``group`` makes of the values under it."""
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
        """The mapping that ``node`` is or, in short, stands for."""
        if isinstance(node, ScalarNode) and not node.text and not group.shorthand_key:
            return MappingNode(node.position, ())
        if isinstance(node, MappingNode):
            return node
        if group.shorthand_key and type(node) is not Node:
            return MappingNode(node.position,
                               ((ScalarNode(node.position, group.shorthand_key), node),))
        given = f"`{node.text}`" if isinstance(node, ScalarNode) else "a list"
        help = f"its keys are {format_alternatives(group.fields)}"
        self.report_problem(node, f"{path or self.name}: expected a mapping, found {given}", help)
        return None

    def read_values(self, group: SchemaGroup, table: MappingNode, path: str) -> dict[str, Any]:
        """The values that are given and right; complains of the rest, and of those that are missing."""
        found: dict[str, Any] = {}
        table = rename_deprecated_keys(table, group)
        if group.open_key and table.get(group.open_key):
            others = tuple((key, node) for key, node in table if key.text not in group.fields)
            table = replace(table, entries=tuple(entry for entry in table if entry not in others))
            found["arguments"] = {key.text: plain_value(node) for key, node in others}
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
                found |= {name: value} if len(self.problems) == before else {}
            elif child.required if isinstance(child, SchemaGroup) else child.default is None:
                help = f"add `{name}:` with {describe_field(child)}" if isinstance(
                    child, SchemaField) else None
                self.report_problem(_first_character(table.position),
                                    f"`{inner}` is missing: {child.doc}", help, code="missing-key")
        return found

    def read_value(self, field: SchemaField, node: Node, path: str) -> Any:
        """One value."""
        if field.items:
            items = node.items if isinstance(node, SequenceNode) else (node,)
            self.positions |= {f"{path}[{at}]": item.display_position
                               for at, item in enumerate(items)}
            return tuple(self.read_group(field.items, item, path) for item in items)
        if field.type == "node":
            return field.read(node, self.report_problem)
        if isinstance(node,
                      ScalarNode) and node.text in NONE_TEXTS and NONE_TEXT in field.special_values:
            return None
        return self.read_constant(field, node, path)

    def read_constant(self, field: SchemaField, node: Node, path: str) -> Any:
        """The constant that ``node`` writes."""
        if isinstance(node, SequenceNode | MappingNode):
            what = "a list" if isinstance(node, SequenceNode) else "a mapping"
            return self.report_problem(node,
                                       f"{path}: expected {describe_field(field)}, found {what}")
        if not isinstance(node, ScalarNode):
            return None  # complained of already
        if field.type == "text":
            return node.text if node.text else self.report_problem(
                node, f"{path}: expected " f"{describe_field(field)}")

        def complain(problem: ValueSyntaxError) -> None:
            self.report_problem(node.position_of(problem.span), f"{path}: {problem.message}",
                                problem.help, code=problem.code)

        try:
            spec = parse_value(node.text.removeprefix("+"))
        except ValueSyntaxError:
            return self.report_unexpected(field, node, path)
        if isinstance(spec, ConstantDomain) and isinstance(
                spec.value, float) and field.type == "size":
            spec = replace(spec, value=int(spec.value)) if spec.value.is_integer() else spec
        word = format_constant(spec.value) if isinstance(spec, ConstantDomain) else ""
        if word in field.deprecated_words and isinstance(spec, ConstantDomain):
            spec = replace(spec, value=field.deprecated_words[word])
            warn_deprecated(node.position, f"{path}: `{word}` is now `{spec.value}`")
            word = str(spec.value)
        wordy = field.type == "word" or (isinstance(spec, ConstantDomain)
                                         and isinstance(spec.value, str))
        if not isinstance(spec, ConstantDomain | ListDomain) or (
                wordy and word not in (*field.words, *field.special_values)):
            return self.report_unexpected(field, node, path)
        fitted = check_domain(spec, field, (), complain)
        return fitted.values if isinstance(fitted, ListDomain) else fitted.value if isinstance(
            fitted, ConstantDomain) else None

    def report_unexpected(self, field: SchemaField, node: ScalarNode, path: str) -> None:
        """Complains of a text that the field does not take."""
        words = (*field.words, *field.special_values)
        help = suggest_match(node.text, words) if words and field.type == "word" else None
        self.report_problem(node, f"{path}: expected {describe_field(field)}, found `{node.text}`",
                            help)


def _is_default(child: SchemaField | SchemaGroup, node: Node) -> bool:
    """Whether ``node`` is the ``none`` that pages of reference show as the default of a text or a value of no kind."""
    return isinstance(child, SchemaField) and child.default == NONE_TEXT and child.type in (
        "text", "node") and is_none(node)


def is_none(node: Node) -> bool:
    """Whether a file says that there is nothing under a key."""
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


def _first_character(place: SourcePosition) -> SourcePosition:
    """The first character of ``place``, since what is missing has no text."""
    return replace(place, end=place.column + 1) if place.source.has_lines else place


def apply_override(table: MappingNode, schema: SchemaGroup, assignment: str,
                   option: str = "--set") -> MappingNode:
    """``table`` with ``recipe.steps=500``, as given to ``option``, in place of what it said.

    Raises:
        UserError: it is not of the form ``key=value``.
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
    """``table`` with ``value`` under ``path``; below a key that is no group, the rest of the path is one name."""
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
        rest = path[1:] if isinstance(child, SchemaGroup) else [".".join(path[1:])]
        value = _with(within, child, rest, value, place)
    entries = tuple((name, value if name.text == key.text else old) for name, old in table.entries)
    return replace(table, entries=entries if inner is not None else (*entries, (key, value)))


def flatten(mapping: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its dotted path, as ``--set`` would write it."""
    for key, value in mapping.items():
        yield from flatten(value, join_path(path, key)) if isinstance(value, Mapping) else [
            (join_path(path, key), value)]


def with_position(error: UserError, positions: Mapping[str, SourcePosition]) -> UserError:
    """``error`` with file, line and column, where it is of a key that the file gives; else as it is."""
    key = error.key or ""
    while key and positions.get(key) is None:
        key = key.rpartition(".")[0]
    if not key or type(error) is not UserError:
        return error
    return ConfigError([Problem(positions[key], error.message, error.help, error.code)])


def to_node(name: str, value: Any, key: str = "") -> Node:
    """The node that ``value``, JSON or its like, would be in a file; errors show it under ``name``."""
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
    """Checks the fields of ``instance``, a frozen dataclass of ``schema``, and gives them their types.

    Raises:
        SpaceErrors: every field that is wrong.
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
    """What ``schema`` makes of ``node``. Raises SpaceErrors."""
    reader = ConfigReader(schema)
    found = reader.read(node)
    if reader.problems:
        raise ConfigError(reader.problems)
    return found
