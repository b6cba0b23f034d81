"""Help with a key that a schema does not know: what was probably meant, and what there is."""

from collections.abc import Iterable, Sequence

from scalesearch.space.schema.bound_tree import SchemaIndex
from scalesearch.space.schema.types import SchemaGroup
from scalesearch.space.syntax.diagnostics import closest_match, format_alternatives

MAX_LISTED_KEYS = 12  # keys that are listed beside a guess
MIN_SIMILARITY = 0.66  # difflib's ratio that a guess at a key of another group needs


def suggest_key(name: str, group: SchemaGroup, path: str, legal: Sequence[str], index: SchemaIndex,
                guesses: bool) -> str:
    """Says what the key ``name`` in ``path`` may have meant.

    Args:
        group: at ``path``.
        legal: the keys there.
        guesses: whether a key of another group may be guessed that is only spelled alike.
    """
    owners = [variant for variant, inner in group.variants.items() if name in inner.fields]
    if owners:
        return f"it belongs to {format_alternatives(owners)}: write `{owners[0]}: {{ {name}: … }}`"
    if name in group.unsupported:
        return group.unsupported[name]
    if called := index.describe_synonym(name, path):
        return called
    others = [other for other in (*index.groups, *index.entries) if other]
    same = _nearest((other for other in others if _last(other) == name), path)
    if same and "." not in same:
        return f"`{name}` is a key of the top level"
    if not same and (meant := closest_match(name, legal)):
        return f"did you mean `{meant}`?"
    if not same and any(bracket in name for bracket in "()[]"):
        return "inside { } and [ ], quote a value that contains a comma"
    keys = f"the keys {f'in `{path}`' if path else 'here'} are {format_alternatives(legal)}"
    there = same or (_most_similar(name, others, path) if guesses else None)
    if not there:
        return keys
    return f"did you mean `{there}`?" + (f" Or else, {keys}" if len(legal) <= MAX_LISTED_KEYS
                                         else "")


def _most_similar(name: str, others: Sequence[str], path: str) -> str | None:
    """The key of another group that is spelled most alike."""
    meant = closest_match(name, {_last(other) for other in others}, MIN_SIMILARITY)
    return _nearest((other for other in others if _last(other) == meant),
                    path) or closest_match(name, others, MIN_SIMILARITY)


def _nearest(others: Iterable[str], path: str) -> str | None:
    """The one with most of the beginning in common with ``path``, of equal ones the shortest."""
    return min(others, key=lambda other: (-_shared(other, path), other.count(".")), default=None)


def _shared(one: str, other: str) -> int:
    """How many names two paths begin with alike."""
    alike = [a == b for a, b in zip(one.split("."), other.split("."))]
    return (*alike, False).index(False)


def _last(path: str) -> str:
    return path.rpartition(".")[2]
