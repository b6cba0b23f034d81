"""Replaces the broken keys of a space, so that the rest can still be checked."""

from collections.abc import Iterable
from dataclasses import replace

from scalesearch.space.binding.static_checks import needs_of
from scalesearch.space.schema.bound_tree import Branch, Leaf
from scalesearch.space.syntax.choices import options
from scalesearch.space.syntax.diagnostics import Place, Problem
from scalesearch.space.syntax.domains import Broken, Literal
from scalesearch.space.syntax.nodes import Node


def mend(root: Branch, problems: list[Problem]) -> tuple[Branch, set[str]]:
    """Replaces each key that is wrong or depends on one by a constant; also returns the sound keys."""
    needs = needs_of(root)
    bad = {leaf.key for leaf in root.leaves() if _is_broken(leaf, problems)}
    bad |= _circular(needs)
    while spread := {key for key, others in needs.items() if key not in bad and others & bad}:
        bad |= spread
    return (_without(root, bad) if bad else root), set(needs) - bad


def _is_broken(leaf: Leaf, problems: Iterable[Problem]) -> bool:
    if any(isinstance(option, Broken) for option in options(leaf.spec)):
        return True
    place = leaf.origin.here if isinstance(leaf.origin, Node) else None
    return leaf.given and place is not None and any(_inside(problem.place, place) for problem in problems)


def _inside(inner: Place, outer: Place) -> bool:
    return (inner.source, inner.line) == (outer.source, outer.line) and outer.column <= inner.column <= outer.end


def _circular(needs: dict[str, set[str]]) -> set[str]:
    """Keys that depend on themselves, directly or not."""

    def reached(start: str) -> set[str]:
        reachable: set[str] = set()
        new = needs.get(start, set())
        while new - reachable:
            reachable |= new
            new = {key for other in new for key in needs.get(other, ())}
        return reachable

    return {key for key in needs if key in reached(key)}


def _without(branch: Branch, bad: set[str]) -> Branch:
    def mended(leaf: Leaf, value: str | int) -> Leaf:
        return replace(leaf, spec=Literal(value)) if leaf.key in bad else leaf

    fields = tuple(
        (name, mended(child, 1) if isinstance(child, Leaf) else _without(child, bad)) for name, child in branch.fields
    )
    variants = tuple((name, _without(inner, bad)) for name, inner in branch.variants)
    chooser = mended(branch.chooser, variants[0][0] if variants else "none") if branch.chooser else None
    return replace(branch, chooser=chooser, fields=fields, variants=variants)
