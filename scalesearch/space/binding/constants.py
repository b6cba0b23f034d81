"""Files of constants: study files, recipes and data files, read by a schema as a space is, with the same errors."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from scalesearch.blocks.core import join_path
from scalesearch.errors import UserError
from scalesearch.space.binding.binder import Binder
from scalesearch.space.schema.bound_tree import index_of
from scalesearch.space.schema.settings import OPTIONAL
from scalesearch.space.schema.type_check import describe, fit
from scalesearch.space.schema.types import Field, Group
from scalesearch.space.syntax.diagnostics import Place, Problem, Source, SpaceErrors, either, suggest
from scalesearch.space.syntax.domains import Items, Literal
from scalesearch.space.syntax.lexer import SyntaxProblem
from scalesearch.space.syntax.nodes import Node, Sequence, Table, Text, from_text
from scalesearch.space.syntax.parameters import say
from scalesearch.space.syntax.value_parser import parse_value
from scalesearch.space.syntax.yaml_reader import compose

NOTHING = (OPTIONAL, "null", "~", "")


class Reader:
    """Reads mappings of constants by a schema, and keeps every problem until all are found.

    Attributes:
        problems: what is wrong so far.
        places: where the value of each key stands that is given, by dotted path.
    """

    def __init__(self, schema: Group, name: str = "") -> None:
        """``name``: the subject of messages about the mapping itself."""
        self.schema, self.name = schema, name
        self.binder = Binder(index_of(schema))
        self.binder.guesses = False
        self.problems: list[Problem] = self.binder.problems
        self.places: dict[str, Place] = {}

    def wrong(self, node: Node | Place, message: str, help: str | None = None, code: str = "bad-value") -> None:
        """Notes a problem."""
        self.problems.append(Problem(node.here if isinstance(node, Node) else node, message, help, code=code))

    def read(self, node: Node) -> Any:
        """What the schema makes of ``node``; ``None`` where that cannot be said for its problems."""
        return self.group(self.schema, node, "")

    def group(self, group: Group, node: Node, path: str) -> Any:
        """What ``group`` makes of the values under it."""
        if group.optional and isinstance(node, Text) and node.text and node.text in NOTHING:
            return None
        table, before = self.table(group, node, path), len(self.problems)
        if table is None:
            return None
        values = self.values(group, table, path)
        if len(self.problems) == before:
            for key, message, help in group.check(values):
                subject = (join_path(path, key) if key else path) or self.name
                place = self.places.get(join_path(path, key)) or node.here
                self.wrong(place, f"{subject}: {message}" if subject else message, help)
        if len(self.problems) > before:
            return None
        try:
            return group.make(**values)
        except UserError as error:
            return self.wrong(node, error.message, error.help, code=error.code)

    def table(self, group: Group, node: Node, path: str) -> Table | None:
        """The mapping that ``node`` is or, in short, stands for."""
        if isinstance(node, Text) and not node.text and not group.bare:
            return Table(node.place, ())
        if isinstance(node, Table):
            return node
        if group.bare and type(node) is not Node:
            return Table(node.place, ((Text(node.place, group.bare), node),))
        given = f"`{node.text}`" if isinstance(node, Text) else "a list"
        help = f"its keys are {either(group.fields)}"
        self.wrong(node, f"{path or self.name}: expected a mapping, found {given}", help)
        return None

    def values(self, group: Group, table: Table, path: str) -> dict[str, Any]:
        """The values that are given and right; complains of the rest, and of those that are missing."""
        found: dict[str, Any] = {}
        if group.open and table.get(group.open):
            others = tuple((key, node) for key, node in table if key.text not in group.fields)
            table = replace(table, entries=tuple(entry for entry in table if entry not in others))
            found["arguments"] = {key.text: scalar(node) for key, node in others}
        entries = self.binder.entries(group, table, path)
        for name, child in group.fields.items():
            inner = join_path(path, name)
            if name in entries:
                node = entries[name][1]
                if _is_default(child, node):
                    continue
                self.places[inner] = node.here
                before = len(self.problems)
                value = self.group(child, node, inner) if isinstance(child, Group) else self.value(child, node, inner)
                found |= {name: value} if len(self.problems) == before else {}
            elif child.required if isinstance(child, Group) else child.default is None:
                help = f"add `{name}:` with {describe(child)}" if isinstance(child, Field) else None
                self.wrong(_start(table.place), f"`{inner}` is missing: {child.doc}", help, code="missing-key")
        return found

    def value(self, field: Field, node: Node, path: str) -> Any:
        """One value."""
        if field.items:
            items = node.items if isinstance(node, Sequence) else (node,)
            self.places |= {f"{path}[{at}]": item.here for at, item in enumerate(items)}
            return tuple(self.group(field.items, item, path) for item in items)
        if field.kind == "node":
            return field.read(node, self.wrong)
        if isinstance(node, Text) and node.text in NOTHING and OPTIONAL in field.also:
            return None
        return self.constant(field, node, path)

    def constant(self, field: Field, node: Node, path: str) -> Any:
        """The constant that ``node`` writes."""
        if isinstance(node, Sequence | Table):
            what = "a list" if isinstance(node, Sequence) else "a mapping"
            return self.wrong(node, f"{path}: expected {describe(field)}, found {what}")
        if not isinstance(node, Text):
            return None  # complained of already
        if field.kind == "text":
            return node.text if node.text else self.wrong(node, f"{path}: expected {describe(field)}")

        def complain(problem: SyntaxProblem) -> None:
            self.wrong(node.at(problem.span), f"{path}: {problem.message}", problem.help, code=problem.code)

        try:
            spec = parse_value(node.text.removeprefix("+"))
        except SyntaxProblem:
            return self.unfit(field, node, path)
        if isinstance(spec, Literal) and isinstance(spec.value, float) and field.kind == "size":
            spec = replace(spec, value=int(spec.value)) if spec.value.is_integer() else spec
        word = say(spec.value) if isinstance(spec, Literal) else ""
        wordy = field.kind == "word" or (isinstance(spec, Literal) and isinstance(spec.value, str))
        if not isinstance(spec, Literal | Items) or (wordy and word not in (*field.words, *field.also)):
            return self.unfit(field, node, path)
        fitted = fit(spec, field, (), complain)
        return fitted.values if isinstance(fitted, Items) else fitted.value if isinstance(fitted, Literal) else None

    def unfit(self, field: Field, node: Text, path: str) -> None:
        """Complains of a text that the field does not take."""
        words = (*field.words, *field.also)
        help = suggest(node.text, words) if words and field.kind == "word" else None
        self.wrong(node, f"{path}: expected {describe(field)}, found `{node.text}`", help)


def _is_default(child: Field | Group, node: Node) -> bool:
    """Whether ``node`` is the ``none`` that pages of reference show as the default of a text or a value of no kind."""
    return isinstance(child, Field) and child.default == OPTIONAL and child.kind in ("text", "node") and is_none(node)


def is_none(node: Node) -> bool:
    """Whether a file says that there is nothing under a key."""
    return isinstance(node, Text) and not node.quoted and node.text in NOTHING and node.text != ""


def scalar(node: Node) -> Any:
    """A plain value without a schema: a number, yes or no, a text, or a list of these."""
    if isinstance(node, Sequence):
        return [scalar(item) for item in node.items]
    if not isinstance(node, Text) or node.quoted:
        return node.text if isinstance(node, Text) else None
    try:
        spec = parse_value(node.text)
    except SyntaxProblem:
        return node.text
    if node.text in NOTHING:
        return None
    return spec.value if isinstance(spec, Literal) else node.text


def _start(place: Place) -> Place:
    """The first character of ``place``, since what is missing has no text."""
    return replace(place, end=place.column + 1) if place.source.numbered else place


def override(table: Table, schema: Group, assignment: str, option: str = "--set") -> Table:
    """``table`` with ``recipe.steps=500``, as given to ``option``, in place of what it said.

    Raises:
        UserError: it is not of the form ``key=value``.
    """
    path, equals, text = assignment.partition("=")
    if not equals or not path.strip():
        raise UserError(f"{option} {assignment}: write it as key=value", code="not-key-value")
    name = f"{option} {assignment}"
    value: Node | None = from_text(name, f"{path}=", text.strip())
    if text.strip().startswith(("[", "{")):
        value = compose(Source(name, f"value: {text}", numbered=False))[0].get("value")
    assert value is not None
    place = from_text(name, "", assignment).at((0, len(path)))
    return _with(table, schema, path.strip().split("."), value, place)


def _with(table: Table, schema: Field | Group | None, path: list[str], value: Node, place: Place) -> Table:
    """``table`` with ``value`` under ``path``; below a key that is no group, the rest of the path is one name."""
    child = schema.fields.get(path[0]) if isinstance(schema, Group) else None
    key, inner = Text(place, path[0]), table.get(path[0])
    if len(path) > 1:
        short = isinstance(inner, Sequence) or (isinstance(inner, Text) and inner.text not in NOTHING)
        if inner and short and isinstance(child, Group) and child.bare:
            inner = Table(inner.place, ((Text(inner.place, child.bare), inner),))
        within = inner if isinstance(inner, Table) else Table(value.place, ())
        rest = path[1:] if isinstance(child, Group) else [".".join(path[1:])]
        value = _with(within, child, rest, value, place)
    entries = tuple((name, value if name.text == key.text else old) for name, old in table.entries)
    return replace(table, entries=entries if inner is not None else (*entries, (key, value)))


def flattened(mapping: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its dotted path, as ``--set`` would write it."""
    for key, value in mapping.items():
        yield from flattened(value, join_path(path, key)) if isinstance(value, Mapping) else [(join_path(path, key), value)]


def placed(error: UserError, places: Mapping[str, Place]) -> UserError:
    """``error`` with file, line and column, where it is of a key that the file gives; else as it is."""
    key = error.key or ""
    while key and places.get(key) is None:
        key = key.rpartition(".")[0]
    if not key or type(error) is not UserError:
        return error
    return SpaceErrors([Problem(places[key], error.message, error.help, error.code)])


def node_of(name: str, value: Any, key: str = "") -> Node:
    """The node that ``value``, JSON or its like, would be in a file; errors show it under ``name``."""
    if hasattr(value, "to_json"):
        return node_of(name, value.to_json(), key)
    if isinstance(value, Mapping):
        table = {from_text(name, "", str(inner)): node_of(name, item, str(inner)) for inner, item in value.items()}
        place = from_text(name, f"{key}: " if key else "", say(dict(value)) if value else "{}").place
        return Table(place, tuple(table.items()))
    text = from_text(name, f"{key}: " if key else "", OPTIONAL if value is None else say(value))
    if isinstance(value, list | tuple):
        return Sequence(text.place, tuple(node_of(name, item, key) for item in value))
    return text


def settle(instance: Any, schema: Group, name: str) -> None:
    """Checks the fields of ``instance``, a frozen dataclass of ``schema``, and gives them their types.

    Raises:
        SpaceErrors: every field that is wrong.
    """
    values = {key: getattr(instance, key) for key in schema.fields if getattr(instance, key) not in (None, ())}
    values |= {key: None for key, field in schema.fields.items() if key not in values and not _may_be_none(field)}
    for key, value in read_constants(replace(schema, make=dict), node_of(name, values)).items():
        object.__setattr__(instance, key, value)


def _may_be_none(field: Field | Group) -> bool:
    return isinstance(field, Group) or field.default == OPTIONAL


def read_constants(schema: Group, node: Node) -> Any:
    """What ``schema`` makes of ``node``. Raises SpaceErrors."""
    reader = Reader(schema)
    found = reader.read(node)
    if reader.problems:
        raise SpaceErrors(reader.problems)
    return found
