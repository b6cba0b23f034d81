"""Decides every key of a space, asking only for parameters that are needed."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from scalesearch.errors import UserError
from scalesearch.space.schema.bound_tree import Leaf
from scalesearch.space.schema.types import Field
from scalesearch.space.syntax.domains import Fault, Spec
from scalesearch.space.syntax.evaluator import ABSENT
from scalesearch.space.syntax.parameters import Parameter
from scalesearch.space.syntax.schedules import Call, Reference, Schedule, to_json

T = TypeVar("T")
AskFunction = Callable[[str, Parameter], Any]


class Answers(Mapping[str, Any]):
    """The values of all keys: key to JSON value, constants included, in schema order.

    Attributes:
        params: what was asked and answered, by the name of the parameter.
        problems: (key, reason) of values that no network can have; empty for a candidate that can be built.
    """

    def __init__(self, parsed: dict[str, Any], params: dict[str, Any], problems: tuple[tuple[str, str], ...]) -> None:
        self._parsed = parsed
        self._values = {key: to_json(value) for key, value in parsed.items()}
        self.params: Mapping[str, Any] = dict(params)
        self.problems = problems

    def value(self, key: str) -> Any:
        """The value as an object: schedules are Calls, References or tuples."""
        return self._parsed[key]

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple((key, str(value)) for key, value in self._values.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._values == dict(other)

    def __repr__(self) -> str:
        return f"Answers({self._values})"


class Questionnaire:
    """The leaves of a space, in schema order, ready to be asked."""

    def __init__(self, leaves: list[Leaf]) -> None:
        self.leaves = leaves
        self.domains: dict[str, Spec] = {leaf.path: leaf.spec.named(leaf.path) for leaf in self.leaves}
        self.by_key: dict[str, list[Leaf]] = {}
        for leaf in self.leaves:
            self.by_key.setdefault(leaf.key, []).append(leaf)

    def dimensions(self) -> list[tuple[str, Parameter]]:
        """Every parameter that may be asked with its name, in schema order."""
        return [dimension for domain in self.domains.values() for dimension in domain.dimensions()]

    def answer(self, ask: AskFunction) -> Answers:
        """A complete sheet, with ``ask(name, parameter)`` giving the answers."""
        sheet = Sheet(self, ask)
        for leaf in self.present(sheet):
            sheet.decide(leaf)
        return Answers(sheet.parsed, sheet.params, tuple(self.problems(sheet)))

    def present(self, sheet: "Sheet") -> Iterator[Leaf]:
        """The leaves that exist under the variants chosen."""
        for leaf in self.leaves:
            if all(sheet.lookup(group) == variant for group, variant in leaf.guards):
                yield leaf

    def problems(self, sheet: "Sheet") -> Iterator[tuple[str, str]]:
        """Values that cannot be, and schedules that do not fit their depth."""
        yield from sheet.faults.items()
        for leaf in self.leaves:
            if leaf.field.fits is None or leaf.key not in sheet.parsed or leaf.key in sheet.faults:
                continue
            reason = self.misfit(leaf, sheet)
            if reason:
                yield leaf.key, f"{to_json(sheet.parsed[leaf.key])} does not fit: {reason}"

    def misfit(self, leaf: Leaf, sheet: "Sheet") -> str | None:
        """The reason why the schedule of ``leaf`` does not fit its depth, or ``None``."""
        depth = sheet.lookup(leaf.field.fits or "")
        value = sheet.parsed[leaf.key]
        if not isinstance(depth, int) or isinstance(value, list | str):
            return None
        other = None
        if isinstance(value, Reference):
            target = self.target(leaf, value.path)
            other = sheet.lookup(target.field.fits) if target and target.field.fits else None
        return misfit(value, leaf.field, depth, other if isinstance(other, int) else None)

    def target(self, leaf: Leaf, path: str) -> Leaf | None:
        """The schedule that a reference inside ``leaf`` points to."""
        scope = leaf.path.rpartition(".")[0]
        while True:
            leaves = self.by_key.get(f"{scope}.{path}" if scope else path)
            if leaves or not scope:
                return leaves[0] if leaves else None
            scope = scope.rpartition(".")[0]


class Sheet:
    """One sheet being filled in."""

    def __init__(self, form: Questionnaire, ask: AskFunction) -> None:
        self.form = form
        self.answer = ask
        self.params: dict[str, Any] = {}
        self.parsed: dict[str, Any] = {}
        self.faults: dict[str, str] = {}

    def ask(self, name: str, parameter: Parameter) -> Any:
        """Asks, and makes sure the answer is legal. Raises UserError where it is not."""
        given = self.answer(name, parameter)
        try:
            self.params[name] = parameter.settle(given)
        except (UserError, ValueError, TypeError):
            raise UserError(f"{name}: {given!r} is not a legal value; expected {parameter}",
                            code="illegal-value") from None
        return self.params[name]

    def decide(self, leaf: Leaf) -> Any:
        """The value of a leaf that exists; asked at most once."""
        if leaf.key not in self.parsed:
            try:
                self.parsed[leaf.key] = self.form.domains[leaf.path].decide(self)
            except Fault as fault:
                self.parsed[leaf.key] = None
                self.faults[leaf.key] = str(fault)
        return self.parsed[leaf.key]

    def lookup(self, key: str) -> Any:
        """The value of ``key`` as JSON; ABSENT where it does not exist or has no legal value."""
        if key not in self.parsed:
            there = (leaf for leaf in self.form.by_key.get(key, ())
                     if all(self.lookup(group) == variant for group, variant in leaf.guards))
            if (leaf := next(there, None)) is None:
                return ABSENT
            self.decide(leaf)
        value = to_json(self.parsed[key])
        return ABSENT if value is None else value


def misfit(schedule: Schedule, field: Field, depth: int, other_depth: int | None) -> str | None:
    """The reason why ``schedule`` does not fit a stack of ``depth`` layers, or ``None``.

    Args:
        other_depth: for a Reference, the depth of the stack it points to, if known.
    """
    if isinstance(schedule, Call):
        return field.calls[schedule.name].fits(schedule.arguments, depth)
    if isinstance(schedule, Reference):
        return _outside(schedule, depth, other_depth)
    if len(schedule) != depth:
        return f"the list names {len(schedule)} layers, and the stack has {depth}"
    return None


def _outside(schedule: Reference, depth: int, other_depth: int | None) -> str | None:
    for layer in range(depth):
        index = schedule.at(layer)
        if index is None:
            return f"layer {layer} has no whole number as its index"
        if index < 0 or (other_depth is not None and index >= other_depth):
            layers = f"0 to {other_depth - 1}" if other_depth is not None else "from 0"
            return f"layer {layer} points to layer {index} of {schedule.path}, which has layers {layers}"
    return None


class Endless(Exception):
    """Raised where a continuous parameter is asked."""


def explore(run: Callable[[AskFunction], T]) -> Iterator[T]:
    """Yields ``run(ask)`` for every combination of values that it asks for, in order.

    Which parameters are asked may depend on the answers. Raises Endless at a continuous range.
    """
    script: list[int] = []  # which answer to give to the first, second, ... parameter
    while True:
        sizes: list[int] = []

        def ask(name: str, parameter: Parameter, script: list[int] = script, sizes: list[int] = sizes) -> Any:
            values = parameter.values()
            if values is None:
                raise Endless(name)
            if len(sizes) == len(script):
                script.append(0)
            sizes.append(parameter.count() or 0)
            return values[script[len(sizes) - 1]]

        yield run(ask)
        while script and script[-1] + 1 == sizes[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1
