"""Types of a schema: the keys of a file, and the values that each may have."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from scalesearch.space.syntax.nodes import Node

KINDS = ("size", "number", "word", "flag", "schedule", "list", "text", "node")
Complain = Callable[[Node, str, str | None], None]  # what is wrong with a node, and what would be right


@dataclass(frozen=True)
class CallSpec:
    """A legal call in a schedule, such as ``cycle(g)``; ``maximum`` of its arguments is None for any number.

    ``fits(arguments, depth)`` says why the call does not fit a stack of ``depth`` layers, or ``None``.
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
            ``schedule``, ``list`` (of words, or of whole numbers where no words are given), ``text``, or ``node``,
            anything that ``read`` makes a value of (study, recipe and data files have such keys).
        default: in the language itself (``= 4 * width``); ``None``: must be given.
        low, high: bounds of a ``size`` or ``number``, both included.
        among: the only legal values of a ``size``, where these are few.
        also: words that are legal besides, such as ``off``.
        calls: the legal calls of a ``schedule``; a call without arguments is written as a bare word.
        fits: the key of the depth that a ``schedule`` must fit.
        layers: the key of the depth, where a ``size`` or ``number`` may be given layer by layer.
        doc: one line for help texts.
        synonyms: other tools' names of it, which a message answers with this key.
        form: what a ``node`` may be, in words.
        nested: items of a ``list`` of words may be lists of words.
        items: the value is a list of mappings of this schema, or one of them.
        optional: absent where it is not given; it has no default then.
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
    layers: str | None = None
    doc: str = ""
    unit: str = ""
    synonyms: tuple[str, ...] = ()
    read: Callable[[Node, Complain], Any] = lambda node, complain: node
    form: str = ""
    nested: bool = False
    items: "Group | None" = None
    optional: bool = False

    def __post_init__(self) -> None:
        assert self.kind in KINDS, f"no such kind of field: {self.kind}"


@dataclass(frozen=True)
class Beside:
    """Keys of a variant that are written beside its group: ``heads`` for ``mixer: { attention: { heads: … } }``.

    Args:
        names: the keys; inside the variant they mean the same.
        alone: those of them that exist with that variant alone.
    """

    group: str
    variant: str
    names: frozenset[str]
    alone: frozenset[str]


@dataclass(frozen=True)
class Group:
    """A mapping of keys, of which some may come in variants.

    Args:
        fields: what every variant has.
        variants: the kinds to choose from, each with fields of its own; their names and ``fields`` do not overlap.
        default_variant: ``None``: one must be given.
        optional: absent with all its keys where not given (or ``none``); others take their defaults then.
        clears: ``none`` in place of the mapping means all of its defaults.
        beside: keys of one variant of a field that are written beside it, here.
        spellings: other names of fields, which mean the same in a file.
        bare: the key that a text or a list in place of the mapping stands for.
        gone: keys and variants that do not exist here, and what to do instead.
        called: the keys in the order of a call's arguments, where that is not theirs.
        open: the key beside which keys of any name may be given: ``sampler`` and its arguments.
        check: yields key, problem and help of values that do not go together.
        make: what the values become, by their keys; those that are not given are left out.
    """

    fields: Mapping[str, "Field | Group"] = field(default_factory=lambda: MappingProxyType({}))
    variants: Mapping[str, "Group"] = field(default_factory=lambda: MappingProxyType({}))
    default_variant: str | None = None
    optional: bool = False
    clears: bool = False
    beside: Beside | None = None
    spellings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    doc: str = ""
    synonyms: tuple[str, ...] = ()
    bare: str | None = None
    required: bool = False
    open: str | None = None
    gone: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    called: tuple[str, ...] = ()
    check: Callable[[Mapping[str, Any]], Iterable[tuple[str, str, str | None]]] = lambda values: ()
    make: Callable[..., Any] = dict
