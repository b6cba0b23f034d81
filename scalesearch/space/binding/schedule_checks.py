"""Schedules that fit no depth that their stack can have."""

import itertools
from collections.abc import Iterator, Sequence, Set
from typing import Any

from scalesearch.space.questionnaire.answers import Questionnaire, Sheet, misfit
from scalesearch.space.questionnaire.enumerate import explore
from scalesearch.space.schema.bound_tree import Leaf
from scalesearch.space.syntax.choices import Computed, options
from scalesearch.space.syntax.domains import Broken, Indexed, Spec
from scalesearch.space.syntax.lexer import Span

MOST = 5_000  # depths times arguments that are tried


def never_fits(form: Questionnaire, leaf: Leaf, sound: Set[str]) -> Iterator[tuple[Span, str, str]]:
    """Yields (span, text, reason) of each alternative of ``leaf`` that fits no depth."""
    depths = depths_of(form, leaf.field.fits or "")
    if not depths:
        return
    for option in options(leaf.spec):
        schedules = [schedule for schedule in _values(form, option) if not isinstance(schedule, str)]
        others = _lenders(form, leaf, option, sound)
        if not schedules or len(schedules) * len(depths) * len(others) > MOST:
            continue
        reasons = [misfit(one, leaf.field, depth, other) for one, depth, other in
                   itertools.product(schedules, depths, others)]
        if all(reasons):
            shown = " or ".join(map(str, depths)) if len(depths) <= 3 else f"{min(depths)} to {max(depths)}"
            reason = f"{leaf.field.fits} is {shown}" + f"; with {depths[0]}" * (len(depths) > 1)
            yield option.span, str(option), f"{reason}: {reasons[0]}"


def _lenders(form: Questionnaire, leaf: Leaf, option: Spec, sound: Set[str]) -> Sequence[int | None]:
    """Depths of the stack whose layers are borrowed, the deepest first; [None] if unknown."""
    target = form.target(leaf, option.path) if isinstance(option, Indexed) else None
    known = target.field.fits if target and target.field.fits in sound else None
    return (sorted(depths_of(form, known), reverse=True) if known else None) or [None]


def depths_of(form: Questionnaire, key: str) -> list[int]:
    """Every depth that is possible; empty where that cannot be listed."""
    each = [_values(form, option) for leaf in form.by_key.get(key, ()) for option in options(leaf.spec)]
    return sorted({depth for values in each for depth in values if isinstance(depth, int)}) if all(each) else []


def _values(form: Questionnaire, option: Spec) -> list[Any]:
    """Every value of an alternative; none where they are computed, or too many."""
    if isinstance(option, Computed | Broken):
        return []
    values = explore(lambda ask: option.named(option.key).decide(Sheet(form, ask)))
    listed = list(itertools.islice(values, MOST + 1))
    return listed if len(listed) <= MOST else []
