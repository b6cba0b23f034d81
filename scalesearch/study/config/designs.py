"""Reads what makes a study a grid, an ablation or a scaling study instead of a search.

::

    kind: grid                       # the rows of a table: files, or answers put into `base`
    rows: [reference/edgeformer, {name: ours, file: edge, set: {width: 384}}]       # without: all of the space

    kind: ablation                   # one architecture, and what is changed of it
    base: small/edgeformer           # a file, {file: …, set: {…}}, or the architecture itself
    changes:
      - share: none
      - adapt: nothing
      - { name: alone, set: { share: none, adapt: nothing } }

    kind: scaling                    # one architecture, and how it grows; see ``study.growth``
    base: small/partialformer
    rules: { deeper: 2 | 4 | 6, wider: 96 | 128, hybrid: [{ deeper: 2 | 4 }, { heads: 8 | 12 }] }
    held_out: largest                # each rule's fit is checked by the size that it has not seen; or none
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from scalesearch.errors import UserError
from scalesearch.space import Space, SpaceErrors
from scalesearch.space.syntax.diagnostics import Place, Problem
from scalesearch.space.syntax.nodes import Node, Sequence, Table, Text
from scalesearch.study.config.fields import Sections, plain, written
from scalesearch.study.config.rows import (
    ABLATION,
    GRID,
    KINDS,
    LARGEST,
    NONE,
    SCALING,
    SEARCH,
    Row,
    Rows,
)
from scalesearch.study.config.scaling_rules import EXAMPLE, steps_of

OWN = {"base": (GRID, ABLATION, SCALING), "rows": (GRID,), "changes": (ABLATION,), "rules": (SCALING,),
       "held_out": (SCALING,)}
SEARCHES = ("proposer", "trials", "rungs", "warm_start", "reference")
NEEDS = {ABLATION: ("changes", "- share: none"), SCALING: ("rules", "{deeper: 2 | 4 | 6 | 8}")}
EXPLICIT = {"name", "file", "set"}
BASE = "base"
Open = Callable[[str], Space]


def read_kind(top: Sections) -> str:
    """The study's kind; complains of keys that belong to another."""
    kind = top.word("kind", SEARCH, KINDS)
    for key, _ in top.table:
        kinds = OWN.get(key.text, (kind,))
        if kind not in kinds:
            top.complain(key.here, f"`{key.text}` does not belong to a study of kind {kind}",
                         f"it belongs to {' or '.join(f'`kind: {one}`' for one in kinds)}")
        if kind != SEARCH and key.text in SEARCHES:
            top.complain(key.here, f"`{key.text}` belongs to a search, and a study of kind {kind} trains its rows",
                         "how often, `seeds` says" if key.text == "trials" else "remove it")
    return kind


def space_key(top: Sections, kind: str) -> str:
    """The key that says the space: what is searched, or what rows begin with."""
    return BASE if top.has(BASE) or (kind in NEEDS and not top.has("space")) else "space"


def read_rows(top: Sections, kind: str, space: Space | None, opened: Open) -> Rows | None:
    """The rows of a study of ``kind``; None where it searches, or where something is wrong with them.

    Args:
        space: of ``base`` or ``space``, where given.
        opened: reads a space's file by its name.
    """
    if kind == SEARCH:
        return None
    if kind == GRID and not top.has("rows"):
        return Rows(GRID, (), "", space) if space else None
    reader = _Rows(top, space, opened)
    if kind == GRID:
        return reader.listed()
    key, example = NEEDS[kind]
    if not top.has(key):
        top.complain(top.table.place, f"a study of kind {kind} needs the key `{key}`", f"such as `{key}: {example}`")
    if space is None or not top.has(key):
        return None
    return reader.ablation() if kind == ABLATION else reader.scaling()


class _Rows:
    """Reads rows one by one; each problem is noted at the row's place."""

    def __init__(self, top: Sections, space: Space | None, opened: Open) -> None:
        self.top, self.space, self.opened = top, space, opened
        self.rows: list[Row] = []
        self.first: Space | None = None  # of the rows

    def listed(self) -> Rows | None:
        for item in self._items("rows", "architectures, such as `- small/plain`"):
            self._explicit(item)
        return self._done(GRID)

    def ablation(self) -> Rows | None:
        self._base()
        for item in self._items("changes", "changes, such as `- share: none`"):
            if not isinstance(item, Table) or not item.entries:
                self._wrong(item, "a change is a mapping", "such as `share: none`, or `{name: alone, set: {…}}`")
            elif {key.text for key, _ in item} <= EXPLICIT:
                self._explicit(item)
            else:
                self._add(item.here, ", ".join(f"{key}: {value}" for key, value in _answers(item).items()),
                          [_answers(item)])
        return self._done(ABLATION)

    def scaling(self) -> Rows | None:
        self._base()
        node, rules = self.top.node("rules"), {}
        if not isinstance(node, Table) or not node.entries:
            self._wrong(node, "rules are a mapping of names to how they grow", EXAMPLE)
            return None
        for rule, value in node:
            steps = steps_of(rule, value, self.top.problems.append)
            rules[rule.text] = tuple(name for place, name, changes in steps if self._add(place, name, list(changes)))
        held = self.top.word("held_out", LARGEST, (LARGEST, NONE))
        return self._done(SCALING, rules=rules, held_out=held)

    def _done(self, kind: str, **more: Any) -> Rows | None:
        names = [row.label for row in self.rows]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            self.top.complain(self.top.table.place, f"two rows are called `{twice}`", "give each a `name` of its own")
        if not names or twice:
            return None
        return Rows(kind, tuple(self.rows), names[0], self.space or self.first, **more)

    def _base(self) -> None:
        node = self.top.node(BASE) or self.top.node("space")
        assert node is not None
        self._row(node.here, BASE, lambda: self._space())

    def _explicit(self, item: Node) -> None:
        """``small/plain``, or ``{name, file, set}``."""
        if isinstance(item, Text):
            self._row(item.here, Path(item.text).stem, lambda: self.opened(item.text))
            return
        part = Sections(item if isinstance(item, Table) else Table(item.place, ()), tuple(EXPLICIT), self.top.problems)
        file, sets = part.text("file"), part.node("set")
        if not file and sets is None:
            part.complain(item.here, "a row is a file, answers under `set`, or both",
                          "such as `{name: wide, set: {width: 256}}`")
            return
        name = str(part.text("name", Path(file).stem if file else "row"))
        answers = _answers(sets) if isinstance(sets, Table) else {}
        self._row(item.here, name, lambda: (self.opened(file) if file else self._space()).set(answers))

    def _add(self, place: Place, name: str, changes: Iterable[dict[str, str]]) -> bool:
        def changed() -> Space:
            space = self._space()
            for change in changes:
                space = space.set(change)
            return space

        return self._row(place, name, changed)

    def _row(self, place: Place, name: str, make: Callable[[], Space]) -> bool:
        """Adds a row; returns whether its architecture can be built."""
        try:
            made = make()
            self.rows.append(Row(name, made.closed("it")))
            self.first = self.first or made
        except SpaceErrors as errors:
            for problem in errors.problems:
                self.top.complain(place, f"{name}: {problem.message}", problem.help)
        except UserError as error:
            self.top.complain(place, f"{name}: {error}")
        else:
            return True
        return False

    def _space(self) -> Space:
        if self.space is None:
            raise UserError("there is no `base` that its answers could change; give one, or a `file` for each row")
        return self.space

    def _items(self, key: str, what: str) -> tuple[Node, ...]:
        node = self.top.node(key)
        if isinstance(node, Sequence) and node.items:
            return node.items
        self._wrong(node, f"{key} are a list of {what}")
        return ()

    def _wrong(self, node: Node | None, message: str, help: str | None = None) -> None:
        assert node is not None, "the key is there"
        self.top.problems.append(Problem(node.here, message, help))


def _answers(table: Table) -> dict[str, str]:
    """Key to value in the space language."""
    return {key.text: _flow(value) for key, value in table}


def _flow(node: Node) -> str:
    """The text of a value, on one line."""
    if isinstance(node, Table):
        return "{" + ", ".join(f"{key.text}: {_flow(value)}" for key, value in node) + "}"
    if isinstance(node, Sequence):
        return "[" + ", ".join(map(_flow, node.items)) + "]"
    return node.text if isinstance(node, Text) else written(plain(node))
