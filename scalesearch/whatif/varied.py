"""Architectures of which a few sizes are free: what the other answers become for given values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalesearch.errors import UserError
from scalesearch.feasible.candidates import EMPTY, Candidate, first_fault
from scalesearch.space import Parameter, Space
from scalesearch.space.binding.static_checks import needs_of
from scalesearch.space.questionnaire.answers import Sheet
from scalesearch.space.schema.bound_tree import Leaf
from scalesearch.space.syntax.schedules import to_json


@dataclass
class Varied:
    """An architecture of which the sizes ``keys`` are free.

    Raises:
        UserError: a key is no size, does not exist here, or the space leaves something else open.
    """

    space: Space
    keys: tuple[str, ...]
    present: list[Leaf] = field(init=False)
    base: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        by_key = self.space.form.by_key
        for key in self.keys:
            if key not in by_key:
                raise UserError(unknown(self.space, key), code="unknown-key")
        start = {key: first(self.space, key) for key in self.keys}
        sheet, self.present = self._full(start)
        self.base = sheet.parsed
        for key in self.keys:
            self._check(key)
        self._needs = self._affected()

    def leaf(self, key: str) -> Leaf:
        """Where ``key`` is written."""
        return next(leaf for leaf in self.present if leaf.key == key)

    def answers(self, values: Mapping[str, int]) -> Candidate:
        """The sheet in which the keys have these values and everything else follows, not costed yet."""
        if self._needs is None:
            sheet, present = self._full(values)
            if missing := [key for key in values if all(leaf.key != key for leaf in present)]:
                return Candidate(EMPTY, fault=f"{missing[0]} does not exist")
            own = {key: to_json(value) for key, value in sheet.parsed.items()}
            return Candidate(own, fault=first_fault(self.space.form.problems(sheet)))
        sheet = self._again(values)
        own = {key: to_json(sheet.parsed[key]) for key in self._free}
        problems = self.space.form.problems(sheet) if self._fits else sheet.faults.items()
        return Candidate(own, self._shared, first_fault(problems))

    def _full(self, values: Mapping[str, int]) -> tuple[Sheet, list[Leaf]]:
        sheet = Sheet(self.space.form, _refuse)
        sheet.parsed.update(values)
        present = list(self.space.form.present(self.space.root, sheet))
        for leaf in present:
            sheet.decide(leaf)
        there = {leaf.key for leaf in present}
        sheet.parsed = {key: value for key, value in sheet.parsed.items() if key in there}
        return sheet, present

    def _again(self, values: Mapping[str, int]) -> Sheet:
        sheet = Sheet(self.space.form, _refuse)
        sheet.parsed = self._kept | dict(values)
        for leaf in self._needs or ():
            sheet.decide(leaf)
        return sheet

    def _affected(self) -> list[Leaf] | None:
        """The leaves that the keys decide about; None where the keys decide which leaves there are."""
        needs, affected = needs_of(self.space.root), set(self.keys)
        while more := {key for key, wanted in needs.items() if wanted & affected} - affected:
            affected |= more
        if affected & {group for leaf in self.space.form.leaves for group, _ in leaf.guards}:
            return None
        self._kept = {key: value for key, value in self.base.items() if key not in affected}
        self._shared = {key: to_json(value) for key, value in self._kept.items()}
        self._free = [key for key in self.base if key in affected]
        timed = [leaf for leaf in self.present if leaf.field.fits]
        self._fits = bool(affected & ({leaf.field.fits for leaf in timed} | {leaf.key for leaf in timed}))
        return [leaf for leaf in self.present if leaf.key in affected and leaf.key not in self.keys]

    def _check(self, key: str) -> None:
        leaf = next((leaf for leaf in self.present if leaf.key == key), None)
        if leaf is None:
            group = next(iter(self.space.form.by_key[key][0].guards), ("its group", ""))
            raise UserError(f"{key} does not exist here: {group[0]} is {to_json(self.base.get(group[0], 'none'))}",
                            code="key-absent")
        if leaf.field.kind != "size":
            raise UserError(f"{key} is no whole number: only sizes can be solved for; try `scalesearch cost --sweep`",
                            code="not-a-size")


def _refuse(name: str, parameter: Parameter) -> Any:
    raise UserError(f"{name} is left open ({parameter}); answer it with --set {name}=…", code="open-parameters")


def unknown(space: Space, key: str) -> str:
    """The complaint about a key that there is not."""
    from scalesearch.space.syntax.diagnostics import closest

    meant = closest(key, space.form.by_key)
    return f"{key} is not a key of this space" + (f"; did you mean `{meant}`?" if meant else "")


def first(space: Space, key: str) -> int:
    """A value to begin with: the one that is written, or the first of those that are offered."""
    parameters = offered(space, key)
    if parameters is not None:
        return int(parameters[0])

    def ask(name: str, parameter: Parameter) -> Any:
        return (parameter.values() or [0])[0]

    value = space.answer(ask).get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 1


def offered(space: Space, key: str) -> Sequence[int] | None:
    """The values that the file offers for ``key``, rising; None where it offers no choice.

    Raises:
        UserError: it offers something that is no plain range or list of whole numbers.
    """
    leaves = space.form.by_key[key]
    parameters = [parameter for leaf in leaves for _, parameter in space.form.domains[leaf.path].dimensions()]
    if not parameters:
        return None
    values = parameters[0].values() if len(parameters) == 1 else None
    if values is None or not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        raise UserError(f"{key} is a choice among {parameters[0]}; give it a plain range, as in --set {key}=1..64",
                        code="not-a-range")
    return values if isinstance(values, range) else sorted(int(value) for value in values)
