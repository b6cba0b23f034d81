"""Schedules that fit no depth that their stack can have."""

import itertools
from collections.abc import Iterator, Sequence, Set
from typing import Any

from scalesearch.space.questionnaire.answers import Questionnaire, misfit
from scalesearch.space.schema.bound_tree import Leaf
from scalesearch.space.syntax.choices import Alternatives, options
from scalesearch.space.syntax.domains import Between, CallOf, Indexed, Literal, Spec
from scalesearch.space.syntax.lexer import Span
from scalesearch.space.syntax.schedules import Call

MOST = 5_000  # depths times arguments that are tried


def never_fits(form: Questionnaire, leaf: Leaf, sound: Set[str]) -> Iterator[tuple[Span, str, str]]:
    """Yields (span, text, reason) of each alternative of ``leaf`` that fits no depth."""
    depths = depths_of(form, leaf.field.fits or "")
    if not depths:
        return
    for option in options(leaf.spec):
        schedules = list(itertools.islice(_schedules(option), MOST + 1))
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
    """Depths of the stack whose layers are borrowed, the deepest first; [None] if unknown."""
    target = form.target(leaf, option.path) if isinstance(option, Indexed) else None
    known = target.field.fits if target and target.field.fits in sound else None
    return sorted(depths_of(form, known), reverse=True) if known and depths_of(form, known) else [None]


def _shown(depths: Sequence[int]) -> str:
    return " or ".join(map(str, depths)) if len(depths) <= 3 else f"{min(depths)} to {max(depths)}"


def _together(reasons: Sequence[str], depths: Sequence[int], shown: str) -> str:
    """Joins the reasons of all depths into one, with all depths in place of its own."""
    stems = {reason.removesuffix(f" {depth}") for reason, depth in zip(reasons, depths, strict=True)}
    return f"{stems.pop()} {shown}" if len(stems) == 1 and reasons[0].endswith(f" {depths[0]}") else reasons[0]


def depths_of(form: Questionnaire, key: str) -> list[int]:
    """Every depth that is possible; empty where that cannot be listed."""
    depths: set[Any] = set()
    for leaf in form.by_key.get(key, ()):
        for option in options(leaf.spec):
            count = option.range.count() if isinstance(option, Between) else None
            if isinstance(option, Between) and count is not None and count <= MOST:
                depths |= set(option.range.values() or ())
            elif option.constants is not None:
                depths |= set(option.constants)
            else:
                return []
    return sorted(depth for depth in depths if isinstance(depth, int))


def _schedules(option: Spec) -> Iterator[Any]:
    """Every schedule that an alternative may become; none where it is computed."""
    if option.constants is not None:
        yield from (constant for constant in option.constants if not isinstance(constant, str))
    elif isinstance(option, CallOf):
        for arguments in itertools.product(*(_numbers(argument) for argument in option.arguments)):
            yield Call(option.name, arguments)


def _numbers(argument: Spec) -> Iterator[int]:
    match argument:
        case Literal(int() as value):
            yield value
        case Between(numbers):
            yield from (int(value) for value in numbers.values() or ())
        case Alternatives(inner):
            for option in inner:
                yield from _numbers(option)
