"""Reads the keys of grids, ablations and scaling studies.

::

    type: grid                       # architectures: files, or changes of `base`
    architectures: [reference/edgeformer, {name: wide, file: edge, set: {width: 384}}]  # default: all of the space

    type: ablation                   # one architecture, and what is changed of it
    base: small/edgeformer           # a file, {file: …, set: {…}}, or the architecture itself
    changes:
      - share: none
      - adapt: nothing
      - { name: alone, set: { share: none, adapt: nothing } }

    type: scaling                    # one architecture, and how it grows; see :mod:`.scaling_rules`
    base: small/partialformer
    rules: { deeper: 2 | 4 | 6, wider: 96 | 128, hybrid: [{ deeper: 2 | 4 }, { heads: 8 | 12 }] }
    held_out: largest                # each rule's fit is checked by the size that it has not seen; or none
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

from scalesearch.config.model import schema_of
from scalesearch.config.reader import ConfigReader, is_none
from scalesearch.errors import UserError
from scalesearch.spaces import Space
from scalesearch.spaces.syntax.diagnostics import SourcePosition
from scalesearch.spaces.syntax.nodes import MappingNode, Node, SequenceNode
from scalesearch.studies.config.fixed_architectures import (
    ABLATION,
    GRID,
    SCALING,
    SEARCH,
    ArchitectureSet,
    FixedArchitecture,
)
from scalesearch.studies.config.scaling_rules import RULE_EXAMPLE, read_steps
from scalesearch.studies.config.sections import ArchitectureSpec, ReferenceSpec
from scalesearch.studies.config.spec import StudyFile
from scalesearch.studies.config.values import node_text

KEYS_BY_STUDY_TYPE = {"base": (GRID, ABLATION, SCALING), "architectures": (GRID,), "changes": (ABLATION,),
                      "rules": (SCALING,), "held_out": (SCALING,)}
SEARCH_ONLY_KEYS = ("sampler", "trials", "compute", "rungs", "stop", "warm_start", "reference")
REQUIRED_KEYS = {ABLATION: ("changes", "- share: none"),
                 SCALING: ("rules", "{deeper: 2 | 4 | 6 | 8}")}
CHANGE_EXAMPLE = "such as `share: none`, or `{name: alone, set: {…}}`"
BASE_KEY = "base"
OpenSpace = Callable[[str], Space]


def check_keys_of_type(study_type: str, table: MappingNode, reader: ConfigReader) -> None:
    """Report keys that a study of ``study_type`` does not take, and those missing."""
    set_keys = [key for key, node in table if not is_none(node)]
    for key in set_keys:
        name = key.text.partition(".")[0]
        kinds = KEYS_BY_STUDY_TYPE.get(name, (study_type,))
        if study_type not in kinds:
            reader.report_problem(key, f"`{name}` does not belong to a study of type {study_type}",
                                  f"it belongs to {' or '.join(f'`type: {type_}`' for type_ in kinds)}",
                                  code="key-of-other-study-type")
        if study_type != SEARCH and name in SEARCH_ONLY_KEYS:
            reader.report_problem(key,
                                  f"`{name}` belongs to a search, and a study of type {study_type} "
                                  "trains fixed architectures",
                                  "set `seeds` instead" if name == "trials" else "remove it",
                                  code="key-of-other-study-type")
    required, example = REQUIRED_KEYS.get(study_type, ("", ""))
    if required and not any(node.text.partition(".")[0] == required for node in set_keys):
        reader.report_problem(table.position,
                              f"a study of type {study_type} needs the key `{required}`",
                              f"such as `{required}: {example}`", code="missing-key")


def space_key(study_type: str, positions: Mapping[str, SourcePosition]) -> str:
    """Return the key of the space that is searched or varied."""
    return BASE_KEY if BASE_KEY in positions or (
        study_type in REQUIRED_KEYS and "space" not in positions) else "space"


def read_architectures(spec: StudyFile, space: Space | None, open_space: OpenSpace,
                       reader: ConfigReader) -> ArchitectureSet | None:
    """Read the fixed architectures of a study.

    The result is None for a search, or if they are invalid.

    Args:
        space: of ``base`` or ``space``, where given.
        open_space: reads a space's file by its name.
        reader: of the file, which takes all problems.
    """
    if spec.type == SEARCH:
        return None
    if spec.type == GRID and "architectures" not in reader.positions:
        return ArchitectureSet(GRID, (), "", space) if space else None
    designs = _ArchitectureSetReader(space, open_space, reader)
    if spec.type == GRID:
        return designs.read_grid(spec.architectures)
    if space is None:
        return None
    return designs.read_ablation(spec.changes) if spec.type == ABLATION else designs.read_scaling(
        spec.rules, spec.held_out)


class _ArchitectureSetReader:
    """Makes rows one by one; each problem is noted at the row's place."""

    def __init__(self, space: Space | None, open_space: OpenSpace, reader: ConfigReader) -> None:
        self.space = space
        self.open_space = open_space
        self.reader = reader
        self.report_problem = reader.report_problem
        self.architectures: list[FixedArchitecture] = []
        self.first_space: Space | None = None  # of the rows

    def read_grid(self, specs: Iterable[ReferenceSpec | None]) -> ArchitectureSet | None:
        """Read the architectures of a grid."""
        for index, row in enumerate(specs):
            if row is not None:
                self._explicit(row, self.reader.positions[f"architectures[{index}]"])
        return self._finish(GRID, "architectures")

    def read_ablation(self, changes: Node | None) -> ArchitectureSet | None:
        """The base, and each change of it."""
        self._base()
        for item in changes.items if isinstance(changes, SequenceNode) else ():
            keys = {key.text for key, _ in item} if isinstance(item, MappingNode) else set()
            if not isinstance(item, MappingNode) or not keys:
                self.report_problem(item, "a change is a mapping", CHANGE_EXAMPLE)
            elif not keys <= set(schema_of(ArchitectureSpec).fields):
                overrides = {key.text: node_text(value) for key, value in item}
                self._add(item.display_position,
                          ", ".join(f"{key}: {value}" for key, value in overrides.items()), [overrides])
            elif (row := self._read_row(item)) is not None:
                self._explicit(row, item.display_position)
        if changes is not None and not (isinstance(changes, SequenceNode) and changes.items):
            self.report_problem(changes, "changes are a list", CHANGE_EXAMPLE)
        return self._finish(ABLATION, "changes")

    def _read_row(self, node: Node) -> ArchitectureSpec | None:
        reader = ConfigReader(ArchitectureSpec, "changes")
        row: ArchitectureSpec | None = reader.read(node)
        self.reader.problems += reader.problems
        return row

    def read_scaling(self, node: Node | None, held_out: str) -> ArchitectureSet | None:
        """The base, and each step of each rule."""
        self._base()
        rules = {}
        for rule, value in node if isinstance(node, MappingNode) else ():
            steps = read_steps(rule, value, self.reader.problems.append)
            rules[rule.text] = tuple(
                name for place, name, changes in steps if self._add(place, name, changes))
        if node is not None and not rules:
            self.report_problem(node, "rules are a mapping of names to how they grow", RULE_EXAMPLE)
        return self._finish(SCALING, "rules", rules=rules, held_out=held_out)

    def _finish(self, study_type: str, key: str, **more: Any) -> ArchitectureSet | None:
        names = [row.label for row in self.architectures]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            self.report_problem(self.reader.positions[key], f"two rows are called `{twice}`",
                                "give each a `name` of its own", code="name-taken")
        if not names or twice:
            return None
        return ArchitectureSet(study_type, tuple(self.architectures), names[0],
                               self.space or self.first_space, **more)

    def _base(self) -> None:
        self._try_add(self.reader.positions[BASE_KEY if BASE_KEY in self.reader.positions
                                            else "space"], BASE_KEY, self._space)

    def _explicit(self, row: ReferenceSpec, place: SourcePosition) -> None:
        if row.recipe:
            self.report_problem(place, f"{row.name}: all rows are trained by the study's recipe",
                                "remove `recipe`")
        self._try_add(place, row.name,
                      lambda: (self.open_space(row.file) if row.file
                               else self._space()).with_overrides(row.set))

    def _add(self, place: SourcePosition, name: str, changes: Iterable[Mapping[str, str]]) -> bool:
        return self._try_add(place, name,
                             lambda: reduce(Space.with_overrides, changes, self._space()))

    def _try_add(self, place: SourcePosition, name: str, make: Callable[[], Space]) -> bool:
        """Adds a row; returns whether its architecture can be built."""
        try:
            space = make()
            self.architectures.append(FixedArchitecture(name, space.single_architecture("it"), {}))
        except UserError as error:
            for problem in getattr(error, "problems", ()) or [error]:
                self.report_problem(place, f"{name}: {problem.message}", problem.help,
                                    code=problem.code)
            return False
        self.first_space = self.first_space or space
        return True

    def _space(self) -> Space:
        if self.space is None:
            raise UserError("`base` is missing, which these values change; add it, or give a "
                            "`file` for each row", code="no-base")
        return self.space
