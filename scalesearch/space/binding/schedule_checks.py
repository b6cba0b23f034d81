"""Schedules that fit no depth that their stack can have."""

import itertools
from collections.abc import Iterator, Sequence, Set
from typing import Any

from scalesearch.space.questionnaire.answers import Questionnaire
from scalesearch.space.questionnaire.compile import constant_of
from scalesearch.space.questionnaire.plans import Ask, Fixed, Fork, Pick, Plan, Switch
from scalesearch.space.questionnaire.schedules import Call, misfit
from scalesearch.space.schema.bound_tree import Leaf
from scalesearch.space.syntax.domains import Alternatives, Between, CallOf, Indexed, Literal, Spec, options
from scalesearch.space.syntax.lexer import Span

MOST = 5_000  # depths times arguments that are tried


def never_fits(form: Questionnaire, leaf: Leaf, sound: Set[str]) -> Iterator[tuple[Span, str, str]]:
    """(span, text, reason) of each alternative of ``leaf`` that fits no depth; only ``sound`` keys are asked."""
    depths = depths_of(form, leaf.field.fits or "")
    if not depths:
        return
    for option in options(leaf.spec):
        schedules = list(itertools.islice(_schedules(option, leaf), MOST + 1))
        others = _lenders(form, leaf, option, sound)
        if not schedules or len(schedules) * len(depths) * len(others) > MOST:
            continue
        tried = itertools.product(schedules, depths, others)
        reasons = [misfit(schedule, leaf.field, depth, other) for schedule, depth, other in tried]
        if all(reasons):
            shown = _shown(depths)
            own = [reason or "" for reason in reasons[: len(depths) * len(others) : len(others)]]
            yield option.span, str(option), f"{leaf.field.fits} is {shown}: {_together(own, depths, shown)}"


def _lenders(form: Questionnaire, leaf: Leaf, option: Spec, sound: Set[str]) -> Sequence[int | None]:
    """The depths of the stack whose layers a loan uses, the deepest first; ``None`` where there are none to list."""
    target = form.target(leaf, option.path) if isinstance(option, Indexed) else None
    known = target.field.fits if target and target.field.fits in sound else None
    return sorted(depths_of(form, known), reverse=True) if known and depths_of(form, known) else [None]


def _shown(depths: Sequence[int]) -> str:
    return " or ".join(map(str, depths)) if len(depths) <= 3 else f"{min(depths)} to {max(depths)}"


def _together(reasons: Sequence[str], depths: Sequence[int], shown: str) -> str:
    """One reason for all depths: the first, with all depths in place of its own where nothing else differs."""
    stems = {reason.removesuffix(f" {depth}") for reason, depth in zip(reasons, depths, strict=True)}
    return f"{stems.pop()} {shown}" if len(stems) == 1 and reasons[0].endswith(f" {depths[0]}") else reasons[0]


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
