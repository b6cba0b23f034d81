"""Schedules that fit no depth that their stack can have."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from scalesearch.space.answers import Questionnaire
from scalesearch.space.planning import constant_of
from scalesearch.space.plans import Ask, Fixed, Fork, Pick, Plan, Switch
from scalesearch.space.schedules import Call, misfit
from scalesearch.space.specs import Alternatives, Between, CallOf, Literal, Spec, options
from scalesearch.space.tokens import Span
from scalesearch.space.tree import Leaf

MOST = 5_000  # depths times arguments that are tried


def never_fits(form: Questionnaire, leaf: Leaf) -> Iterator[tuple[Span, str, str]]:
    """(span, text, reason) of each alternative of ``leaf`` that fits no depth."""
    depths = depths_of(form, leaf.field.fits or "")
    if not depths:
        return
    for option in options(leaf.spec):
        schedules = list(itertools.islice(_schedules(option, leaf), MOST + 1))
        if not schedules or len(schedules) * len(depths) > MOST:
            continue
        reasons = [misfit(schedule, leaf.field, depth, None) for schedule in schedules for depth in depths]
        if all(reasons):
            shown = " or ".join(map(str, depths)) if len(depths) <= 3 else f"{min(depths)} to {max(depths)}"
            yield option.span, str(option), f"{leaf.field.fits} is {shown}: {reasons[0]}"


def depths_of(form: Questionnaire, key: str) -> list[int]:
    """Every depth that is possible; empty where that cannot be listed."""
    found: set[int] = set()
    for leaf in form.by_key.get(key, ()):
        values = _values(form.plans[leaf.path])
        if values is None:
            return []
        found |= {value for value in values if isinstance(value, int)}
    return sorted(found)


def _values(plan: Plan) -> set[Any] | None:
    match plan:
        case Fixed(value):
            return {value} if isinstance(value, int) else None
        case Pick(_, _, values):
            return set(values)
        case Ask(_, question):
            count = question.count()
            return set(question.values() or ()) if count is not None and count <= MOST else None
        case Fork(_, _, plans):
            return _union([_values(inner) for inner in plans])
        case Switch(_, then, other):
            return _union([_values(then), _values(other)])
    return None


def _union(sets: Sequence[set[Any] | None]) -> set[Any] | None:
    known = [found for found in sets if found is not None]
    return set().union(*known) if len(known) == len(sets) else None


def _schedules(option: Spec, leaf: Leaf) -> Iterator[Any]:
    """Every schedule that an alternative may become; none where it is computed."""
    constant = constant_of(option, leaf.field)
    if constant is not None:
        if not isinstance(constant[0], str):
            yield constant[0]
    elif isinstance(option, CallOf):
        for arguments in itertools.product(*(_numbers(argument) for argument in option.arguments)):
            yield Call(option.name, arguments)


def _numbers(argument: Spec) -> Iterator[int]:
    match argument:
        case Literal(int() as value):
            yield value
        case Between(found):
            yield from (int(value) for value in found.values() or ())
        case Alternatives(inner):
            for option in inner:
                yield from _numbers(option)
