"""Reads a study file's YAML nodes: every value with its place, every problem kept until all are found."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from scalesearch.errors import UserError
from scalesearch.space.syntax.diagnostics import Place, Problem, Source, suggest
from scalesearch.space.syntax.nodes import Node, Sequence, Table, Text, from_text
from scalesearch.space.syntax.yaml_reader import compose

T = TypeVar("T")
INTEGER = re.compile(r"[-+]?\d[\d_]*")
REAL = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?")
SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kMG])")
WORDS: dict[str, Any] = {"true": True, "yes": True, "false": False, "no": False, "null": None, "~": None, "": None}
DOTTED = (["objectives"], ["teacher", "set"])  # sections whose keys, names of costs or answers, hold dots themselves
SCALE = {"k": 10**3, "M": 10**6, "G": 10**9}


def plain(node: Node) -> Any:
    """The JSON value that a node writes: ``3e-4`` and ``10M`` are numbers, ``yes`` is true, the rest is text."""
    if isinstance(node, Table):
        return {key.text: plain(value) for key, value in node}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    if not isinstance(node, Text):
        return None
    return node.text if node.quoted else scalar(node.text)


def scalar(text: str) -> Any:
    """The value of an unquoted word."""
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if REAL.fullmatch(text):
        return float(text)
    suffixed = SUFFIXED.fullmatch(text)
    if suffixed:
        value = float(suffixed[1]) * SCALE[suffixed[2]]
        return int(value) if value == int(value) else value
    return text


def written(value: Any) -> str:
    """A value in the space language."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


class Sections:
    """The keys of one mapping of a study file, taken one by one.

    Args:
        table: the mapping.
        known: all keys that may stand in it.
        problems: the list that every problem is added to.
    """

    def __init__(self, table: Table, known: Iterable[str], problems: list[Problem]) -> None:
        self.table, self.problems = table, problems
        names = tuple(known)
        seen: set[str] = set()
        for key, _ in table:
            if key.text in seen:
                self.complain(key.here, f"`{key.text}` stands here twice", "keep one of them")
            elif key.text not in names:
                self.complain(key.here, f"there is no key `{key.text}` here", suggest(key.text, names))
            seen.add(key.text)

    def complain(self, place: Place, message: str, help: str | None = None) -> None:
        """Notes one problem."""
        self.problems.append(Problem(place, message, help))

    def missing(self, key: str, example: str) -> None:
        """Complains that ``key`` is not given."""
        self.complain(self.table.place, f"a study needs the key `{key}`", f"such as `{key}: {example}`")

    def has(self, key: str) -> bool:
        """Whether the key is given."""
        return self.table.get(key) is not None

    def node(self, key: str) -> Node | None:
        """The value of ``key``, as a node."""
        return self.table.get(key)

    def value(self, key: str, default: Any = None) -> Any:
        """The value of ``key`` as JSON, or ``default`` where it is not given."""
        node = self.table.get(key)
        return default if node is None else plain(node)

    def whole(self, key: str, default: int, low: int = 0) -> int:
        """A whole number of at least ``low``."""
        value = self.value(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= low:
            return value
        self._wrong(key, f"a whole number of at least {low}")
        return default

    def number(self, key: str, default: float, low: float = 0.0) -> float:
        """A number of at least ``low``."""
        value = self.value(key, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= low:
            return float(value)
        self._wrong(key, f"a number of at least {low:g}")
        return default

    def flag(self, key: str, default: bool) -> bool:
        """Yes or no."""
        value = self.value(key, default)
        if isinstance(value, bool):
            return value
        self._wrong(key, "yes or no")
        return default

    def text(self, key: str, default: Any = None) -> Any:
        """A text, or ``default`` where it is not given."""
        node = self.table.get(key)
        if node is None:
            return default
        if isinstance(node, Text) and node.text:
            return node.text
        self._wrong(key, "a word")
        return default

    def word(self, key: str, default: str, words: Iterable[str]) -> str:
        """One of ``words``."""
        value = str(self.text(key, default))
        legal = tuple(words)
        if value in legal:
            return value
        node = self.table.get(key)
        if node is not None:
            self.complain(node.here, f"`{value}` is not a {key}", suggest(value, legal))
        return default

    def part(self, key: str, known: Iterable[str]) -> "Sections":
        """The mapping under ``key``; an empty one where it is not given."""
        node = self.table.get(key)
        if node is not None and not isinstance(node, Table):
            self._wrong(key, f"a mapping with {', '.join(known)}")
        table = node if isinstance(node, Table) else Table(self.table.place, ())
        return Sections(table, known, self.problems)

    def trying(self, key: str, make: Callable[[], T]) -> T | None:
        """What ``make`` gives; a UserError of its becomes a problem at ``key``."""
        try:
            return make()
        except UserError as error:
            node = self.table.get(key)
            self.complain(node.here if node else self.table.place, str(error))
            return None

    def _wrong(self, key: str, due: str) -> None:
        node = self.table.get(key)
        if node is not None:
            found = f"`{node.text}`" if isinstance(node, Text) else "a mapping or list"
            self.complain(node.here, f"{key}: {found} stands where {due} is due")


def override(table: Table, assignment: str) -> Table:
    """``table`` with ``recipe.steps=500`` (as of ``--set``) in place of what it said.

    Raises:
        UserError: it is not of the form ``key=value``.
    """
    path, equals, text = assignment.partition("=")
    if not equals or not path.strip():
        raise UserError(f"--set {assignment}: write it as key=value, such as --set recipe.steps=500")
    name = f"--set {assignment}"
    if text.strip().startswith(("[", "{")):
        value = compose(Source(name, f"value: {text}", numbered=False))[0].get("value")
        assert value is not None
    else:
        value = from_text(name, f"{path}=", text.strip())
    names = path.strip().split(".")
    for section in DOTTED:
        if names[: len(section)] == section and len(names) > len(section):
            names = [*section, ".".join(names[len(section) :])]
    return _with(table, names, value)


def _with(table: Table, path: list[str], value: Node) -> Table:
    inner = table.get(path[0])
    if len(path) > 1:
        within = inner if isinstance(inner, Table) else Table(value.place, ())
        value = _with(within, path[1:], value)
    if inner is None:
        key = Text(value.place, path[0])
        return replace(table, entries=(*table.entries, (key, value)))
    entries = tuple((key, value if key.text == path[0] else old) for key, old in table.entries)
    return replace(table, entries=entries)
