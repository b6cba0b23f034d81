"""Reads the keys of grids, ablations and scaling studies.

::

    kind: grid                       # the rows of a table: files, or answers put into `base`
    rows: [reference/edgeformer, {name: ours, file: edge, set: {width: 384}}]       # without: all of the space

    kind: ablation                   # one architecture, and what is changed of it
    base: small/edgeformer           # a file, {file: …, set: {…}}, or the architecture itself
    changes:
      - share: none
      - adapt: nothing
      - { name: alone, set: { share: none, adapt: nothing } }

    kind: scaling                    # one architecture, and how it grows; see :mod:`.scaling_rules`
    base: small/partialformer
    rules: { deeper: 2 | 4 | 6, wider: 96 | 128, hybrid: [{ deeper: 2 | 4 }, { heads: 8 | 12 }] }
    held_out: largest                # each rule's fit is checked by the size that it has not seen; or none
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

from scalesearch.errors import UserError
from scalesearch.space import Space
from scalesearch.space.binding.config_reader import ConfigReader, is_none
from scalesearch.space.syntax.diagnostics import SourcePosition
from scalesearch.space.syntax.nodes import MappingNode, Node, SequenceNode
from scalesearch.study.config.rows import ABLATION, GRID, SCALING, SEARCH, Reference, Rows
from scalesearch.study.config.scaling_rules import EXAMPLE, steps_of
from scalesearch.study.config.sections import ROW, ReferenceSpec
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.config.values import written

OWN = {"base": (GRID, ABLATION, SCALING), "rows": (GRID,), "changes": (ABLATION,), "rules": (SCALING,),
       "held_out": (SCALING,)}
SEARCHES = ("proposer", "trials", "compute", "rungs", "stop", "warm_start", "reference")
NEEDS = {ABLATION: ("changes", "- share: none"), SCALING: ("rules", "{deeper: 2 | 4 | 6 | 8}")}
EXAMPLE_OF_CHANGE = "such as `share: none`, or `{name: alone, set: {…}}`"
BASE = "base"
Open = Callable[[str], Space]


def check_keys(kind: str, table: MappingNode, reader: ConfigReader) -> None:
    """Reports keys that a study of ``kind`` does not take, and those that it lacks."""
    given = [key for key, node in table if not is_none(node)]
    for key in given:
        name = key.text.partition(".")[0]
        kinds = OWN.get(name, (kind,))
        if kind not in kinds:
            reader.report_problem(key, f"`{name}` does not belong to a study of kind {kind}",
                         f"it belongs to {' or '.join(f'`kind: {one}`' for one in kinds)}", code="key-of-another-kind")
        if kind != SEARCH and name in SEARCHES:
            reader.report_problem(key, f"`{name}` belongs to a search, and a study of kind {kind} trains its rows",
                         "how often, `seeds` says" if name == "trials" else "remove it", code="key-of-another-kind")
    key, example = NEEDS.get(kind, ("", ""))
    if key and not any(name.text.partition(".")[0] == key for name in given):
        reader.report_problem(table.position, f"a study of kind {kind} needs the key `{key}`", f"such as `{key}: {example}`",
                     code="missing-key")


def space_key(kind: str, places: Mapping[str, SourcePosition]) -> str:
    """The key that says the space: what is searched, or what rows begin with."""
    return BASE if BASE in places or (kind in NEEDS and "space" not in places) else "space"


def read_rows(file: StudySpec, space: Space | None, opened: Open, reader: ConfigReader) -> Rows | None:
    """Rows of a study; None where it searches, or where they are wrong.

    Args:
        space: of ``base`` or ``space``, where given.
        opened: reads a space's file by its name.
        reader: of the file, which takes all problems.
    """
    if file.kind == SEARCH:
        return None
    if file.kind == GRID and "rows" not in reader.positions:
        return Rows(GRID, (), "", space) if space else None
    designs = _Rows(space, opened, reader)
    if file.kind == GRID:
        return designs.listed(file.rows)
    if space is None:
        return None
    return designs.ablation(file.changes) if file.kind == ABLATION else designs.scaling(file.rules, file.held_out)


class _Rows:
    """Makes rows one by one; each problem is noted at the row's place."""

    def __init__(self, space: Space | None, opened: Open, reader: ConfigReader) -> None:
        self.space, self.opened, self.reader, self.wrong = space, opened, reader, reader.report_problem
        self.rows: list[Reference] = []
        self.first: Space | None = None  # of the rows

    def listed(self, rows: Iterable[ReferenceSpec | None]) -> Rows | None:
        """Rows of a grid."""
        for at, row in enumerate(rows):
            if row is not None:
                self._explicit(row, self.reader.positions[f"rows[{at}]"])
        return self._done(GRID, "rows")

    def ablation(self, changes: Node | None) -> Rows | None:
        """The base, and each change of it."""
        self._base()
        for item in changes.items if isinstance(changes, SequenceNode) else ():
            keys = {key.text for key, _ in item} if isinstance(item, MappingNode) else set()
            if not isinstance(item, MappingNode) or not keys:
                self.wrong(item, "a change is a mapping", EXAMPLE_OF_CHANGE)
            elif not keys <= set(ROW.fields):
                answers = {key.text: written(value) for key, value in item}
                self._add(item.display_position, ", ".join(f"{key}: {value}" for key, value in answers.items()), [answers])
            elif (row := self.reader.read_group(ROW, item, "changes")) is not None:
                self._explicit(row, item.display_position)
        if changes is not None and not (isinstance(changes, SequenceNode) and changes.items):
            self.wrong(changes, "changes are a list", EXAMPLE_OF_CHANGE)
        return self._done(ABLATION, "changes")

    def scaling(self, node: Node | None, held_out: str) -> Rows | None:
        """The base, and each step of each rule."""
        self._base()
        rules = {}
        for rule, value in node if isinstance(node, MappingNode) else ():
            steps = steps_of(rule, value, self.reader.problems.append)
            rules[rule.text] = tuple(name for place, name, changes in steps if self._add(place, name, changes))
        if node is not None and not rules:
            self.wrong(node, "rules are a mapping of names to how they grow", EXAMPLE)
        return self._done(SCALING, "rules", rules=rules, held_out=held_out)

    def _done(self, kind: str, key: str, **more: Any) -> Rows | None:
        names = [row.label for row in self.rows]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            self.wrong(self.reader.positions[key], f"two rows are called `{twice}`", "give each a `name` of its own",
                       code="name-taken")
        if not names or twice:
            return None
        return Rows(kind, tuple(self.rows), names[0], self.space or self.first, **more)

    def _base(self) -> None:
        self._row(self.reader.positions[BASE if BASE in self.reader.positions else "space"], BASE, self._space)

    def _explicit(self, row: ReferenceSpec, place: SourcePosition) -> None:
        if row.recipe:
            self.wrong(place, f"{row.name}: all rows are trained by the study's recipe", "remove `recipe`")
        self._row(place, row.name, lambda: (self.opened(row.file) if row.file else self._space()).with_overrides(row.set))

    def _add(self, place: SourcePosition, name: str, changes: Iterable[Mapping[str, str]]) -> bool:
        return self._row(place, name, lambda: reduce(Space.with_overrides, changes, self._space()))

    def _row(self, place: SourcePosition, name: str, make: Callable[[], Space]) -> bool:
        """Adds a row; returns whether its architecture can be built."""
        try:
            made = make()
            self.rows.append(Reference(name, made.single_architecture("it"), {}))
        except UserError as error:
            for problem in getattr(error, "problems", ()) or [error]:
                self.wrong(place, f"{name}: {problem.message}", problem.help, code=problem.code)
            return False
        self.first = self.first or made
        return True

    def _space(self) -> Space:
        if self.space is None:
            raise UserError("there is no `base` that its answers could change; give one, or a `file` for each row",
                            code="no-base")
        return self.space
