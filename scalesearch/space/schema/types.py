"""The types in which a schema is written: which keys a space file may have, and what each may hold."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

KINDS = ("size", "number", "word", "flag", "schedule", "list", "text")


@dataclass(frozen=True)
class CallSpec:
    """A legal call in a schedule, such as ``cycle(g)``.

    Args:
        minimum: fewest arguments.
        maximum: most arguments; ``None`` for any number.
        fits: ``fits(arguments, depth)`` says why the call does not fit a stack of ``depth`` layers, or ``None``.
        doc: one line for help texts.
    """

    minimum: int = 0
    maximum: int | None = 0
    fits: Callable[[tuple[int, ...], int], str | None] = lambda arguments, depth: None
    doc: str = ""


@dataclass(frozen=True)
class Field:
    """One key.

    Args:
        kind: ``size`` (whole number >= low, by default >= 1), ``number`` (float), ``word``, ``flag`` (yes/no),
            ``schedule``, ``list`` (of words, or of whole numbers where no words are given) or ``text``.
        words: the legal words of a ``word``, or of the items of a ``list``.
        default: the value where none is given, in the language itself (``= 4 * width``); ``None``: must be given.
        low, high: bounds of a ``size`` or ``number``, both included.
        among: the only legal values of a ``size``, where these are few.
        also: words that are legal besides, such as ``off``.
        calls: the legal calls of a ``schedule``; a call without arguments is written as a bare word.
        fits: the key of the depth that a ``schedule`` must fit.
        doc: one line for help texts.
    """

    kind: str
    words: tuple[str, ...] = ()
    default: str | None = None
    low: float | None = None
    high: float | None = None
    among: tuple[int, ...] = ()
    also: tuple[str, ...] = ()
    calls: Mapping[str, CallSpec] = field(default_factory=lambda: MappingProxyType({}))
    fits: str | None = None
    doc: str = ""

    def __post_init__(self) -> None:
        assert self.kind in KINDS, f"no such kind of field: {self.kind}"


@dataclass(frozen=True)
class Group:
    """A mapping of keys, of which some may come in variants.

    Args:
        fields: what every variant has.
        variants: the kinds to choose from, each with fields of its own; their names and ``fields`` do not overlap.
        default_variant: the variant where none is given; ``None``: one must be given.
        optional: where the group is not given (or given as ``none``) it is absent, with all its keys;
            a group that is not optional takes its defaults then.
        clears: ``none`` in place of the mapping means all of its defaults.
        doc: one line for help texts.
    """

    fields: Mapping[str, "Field | Group"] = field(default_factory=lambda: MappingProxyType({}))
    variants: Mapping[str, "Group"] = field(default_factory=lambda: MappingProxyType({}))
    default_variant: str | None = None
    optional: bool = False
    clears: bool = False
    doc: str = ""
