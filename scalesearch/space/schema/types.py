"""Types of a schema: the keys of a file, and the values that each may have."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from scalesearch.space.syntax.nodes import Node

FIELD_TYPES = ("size", "number", "word", "flag", "schedule", "list", "text", "node")
# what is wrong with a node, and what would be right
ReportNodeError = Callable[[Node, str, str | None], None]


@dataclass(frozen=True)
class ScheduleSignature:
    """A legal call in a schedule, such as ``cycle(g)``; ``max_arguments`` of its arguments is None for any number.

    ``fits(arguments, depth)`` says why the call does not fit a stack of ``depth`` layers, or
    ``None``.
    """

    min_arguments: int = 0
    max_arguments: int | None = 0
    validate: Callable[[tuple[int, ...], int], str | None] = lambda arguments, depth: None
    doc: str = ""


@dataclass(frozen=True)
class SchemaField:
    """One key.

    Args:
        type: ``size`` (whole number >= low, by default >= 1), ``number`` (float), ``word``,
            ``flag`` (yes/no),
            ``schedule``, ``list`` (of words, or of whole numbers where no words are given),
            ``text``, or ``node``,
            anything that ``read`` makes a value of (study, recipe and data files have such keys).
        default: in the language itself (``= 4 * width``); ``None``: must be given.
        low, high: bounds of a ``size`` or ``number``, both included.
        allowed_sizes: the only legal values of a ``size``, where these are few.
        special_values: words that are legal besides, such as ``off``.
        calls: the legal calls of a ``schedule``; a call without arguments is written as a bare
            word.
        depth_key: the key of the depth that a ``schedule`` must fit.
        layer_depth_key: the key of the depth, where a ``size`` or ``number`` may be given layer by
            layer.
        doc: one line for help texts.
        synonyms: names in other tools. The error for such a key suggests this one.
        deprecated: earlier names of the key. They are accepted, with a warning.
        deprecated_words: earlier values to the present ones, accepted in the same way.
        expected: what a ``node`` may be, in words.
        allows_nested: items of a ``list`` of words may be lists of words.
        items: the value is a list of mappings of this schema, or one of them.
        optional: absent where it is not given; it has no default then.
    """

    type: str
    words: tuple[str, ...] = ()
    default: str | None = None
    low: float | None = None
    high: float | None = None
    allowed_sizes: tuple[int, ...] = ()
    special_values: tuple[str, ...] = ()
    calls: Mapping[str, ScheduleSignature] = field(default_factory=lambda: MappingProxyType({}))
    depth_key: str | None = None
    layer_depth_key: str | None = None
    doc: str = ""
    unit: str = ""
    synonyms: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()
    deprecated_words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    read: Callable[[Node, ReportNodeError], Any] = lambda node, complain: node
    expected: str = ""
    allows_nested: bool = False
    items: "SchemaGroup | None" = None
    optional: bool = False

    def __post_init__(self) -> None:
        assert self.type in FIELD_TYPES, f"no such kind of field: {self.type}"


@dataclass(frozen=True)
class InlinedVariant:
    """Keys of a variant that are written beside its group: ``heads`` for ``mixer: { attention: { heads: … } }``.

    Args:
        inlined_keys: the keys; inside the variant they mean the same.
        exclusive_keys: those of them that exist with that variant alone.
    """

    group: str
    variant: str
    inlined_keys: frozenset[str]
    exclusive_keys: frozenset[str]


@dataclass(frozen=True)
class SchemaGroup:
    """A mapping of keys, of which some may come in variants.

    Args:
        fields: what every variant has.
        variants: the kinds to choose from, each with fields of its own; their names and ``fields``
            do not overlap.
        default_variant: ``None``: one must be given.
        optional: absent with all its keys where not given (or ``none``); others take their defaults
            then.
        none_means_defaults: ``none`` in place of the mapping means all of its defaults.
        inlined_variant: keys of one variant of a field that are written beside it, here.
        spellings: other names of fields, which mean the same in a file.
        shorthand_key: the key that a text or a list in place of the mapping stands for.
        unsupported: keys and variants that do not exist here, and what to do instead.
        argument_order: the keys in the order of a call's arguments, where that is not theirs.
        open_key: the key beside which keys of any name may be given: ``sampler`` and its arguments.
        check: yields key, problem and help of values that do not go together.
        make: what the values become, by their keys; those that are not given are left out.
    """

    fields: Mapping[str, "SchemaField | SchemaGroup"] = field(
        default_factory=lambda: MappingProxyType({}))
    variants: Mapping[str, "SchemaGroup"] = field(default_factory=lambda: MappingProxyType({}))
    default_variant: str | None = None
    optional: bool = False
    none_means_defaults: bool = False
    inlined_variant: InlinedVariant | None = None
    spellings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    doc: str = ""
    synonyms: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()
    shorthand_key: str | None = None
    required: bool = False
    open_key: str | None = None
    unsupported: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    argument_order: tuple[str, ...] = ()
    check: Callable[[Mapping[str, Any]], Iterable[tuple[str, str, str | None]]] = lambda values: ()
    make: Callable[..., Any] = dict

    def current_name(self, key: str) -> str:
        """The present name of ``key``, which may be a deprecated one."""
        return next((name for name, child in self.fields.items() if key in child.deprecated), key)
