"""Types of a schema: the keys of a file and their legal values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MAX_SIZE = 2**53  # up to which floats hold every whole number, so that costs are exact
FIELD_TYPES = ("size", "number", "word", "flag", "schedule", "list", "text", "node")


@dataclass(frozen=True)
class ScheduleSignature:
    """A legal call in a schedule, such as ``cycle(g)``.

    Attributes:
        max_arguments: None for any number of arguments.
        validate: with the arguments and the depth of a stack, returns the reason why the call does
            not fit it, or ``None``.
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
            ``flag`` (yes/no), ``schedule``, ``list`` (of words, or of whole numbers without
            ``words``), ``text``, or ``node`` (any value; for study, recipe and data files).
        default: a text in the language (``= 4 * width``); ``None``: the key is required.
        low, high: bounds of a ``size`` or ``number``, inclusive.
        excludes_low: whether ``low`` itself is not legal.
        allowed_sizes: the only legal values of a ``size``, if not empty.
        special_values: legal words in addition, such as ``off``.
        calls: the legal calls of a ``schedule``; a call without arguments is written as a word.
        depth_key: the key of the depth that a ``schedule`` must fit.
        layer_depth_key: the key of the depth if a ``size`` or ``number`` may have one value per
            layer.
        doc: one line for help texts.
        synonyms: names in other tools. The error for such a key suggests this one.
        deprecated: earlier names of the key. They are accepted, with a warning.
        deprecated_words: earlier values to the present ones, accepted in the same way.
        foreign_words: words of other tools to a help line.
        unknown_word_help: help line for a word that is similar to none of the legal words.
        expected: description of the legal values of a ``node``.
        allows_nested: items of a ``list`` of words may be lists of words.
        items: the value is a list of mappings of this schema, or one of them.
        optional: the key has no default and is absent if it is not set.
    """

    type: str
    words: tuple[str, ...] = ()
    default: str | None = None
    low: float | None = None
    high: float | None = None
    excludes_low: bool = False
    allowed_sizes: tuple[int, ...] = ()
    special_values: tuple[str, ...] = ()
    calls: Mapping[str, ScheduleSignature] = field(default_factory=dict, hash=False)
    depth_key: str | None = None
    layer_depth_key: str | None = None
    doc: str = ""
    unit: str = ""
    synonyms: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()
    deprecated_words: Mapping[str, str] = field(default_factory=dict, hash=False)
    foreign_words: Mapping[str, str] = field(default_factory=dict, hash=False)
    unknown_word_help: str = field(default="", compare=False)
    expected: str = ""
    allows_nested: bool = False
    items: "SchemaGroup | None" = None
    optional: bool = False

    def __post_init__(self) -> None:
        assert self.type in FIELD_TYPES, f"unknown type of field: {self.type}"


@dataclass(frozen=True)
class InlinedVariant:
    """Keys of a variant at the level of its group, for example ``heads`` of attention.

    Args:
        inlined_keys: the keys; they may also be written inside the variant.
        exclusive_keys: the inlined keys that exist only with this variant.
    """

    group: str
    variant: str
    inlined_keys: frozenset[str]
    exclusive_keys: frozenset[str]


@dataclass(frozen=True)
class SchemaGroup:
    """A mapping of keys, possibly with variants.

    Args:
        fields: the keys of all variants.
        variants: name to the keys of this variant; names do not overlap with ``fields``.
        default_variant: ``None``: a variant must be set.
        optional: absent with all its keys if it is not set or ``none``; other groups have their
            defaults then.
        none_means_defaults: ``none`` instead of the mapping means the defaults of all keys.
        inlined_variant: keys of a variant of a field that are written at the level of this group.
        spellings: other spellings of fields to their names.
        deprecated: earlier names of the key. They are accepted, with a warning.
        shorthand_key: the key that a text or a list instead of the mapping is the value of.
        unsupported: keys and variants that do not exist here, with the alternative.
        argument_order: the keys in the order of a call's arguments, if it differs from ``fields``.
        open_key: if this key is set, other keys of any name are its arguments.
    """

    fields: Mapping[str, "SchemaField | SchemaGroup"] = field(default_factory=dict)
    variants: Mapping[str, "SchemaGroup"] = field(default_factory=dict)
    default_variant: str | None = None
    optional: bool = False
    none_means_defaults: bool = False
    inlined_variant: InlinedVariant | None = None
    spellings: Mapping[str, str] = field(default_factory=dict)
    doc: str = ""
    synonyms: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()
    shorthand_key: str | None = None
    required: bool = False
    open_key: str | None = None
    unsupported: Mapping[str, str] = field(default_factory=dict)
    argument_order: tuple[str, ...] = ()

    def current_name(self, key: str) -> str:
        """The present name of ``key``, which may be a deprecated one."""
        return next((name for name, child in self.fields.items() if key in child.deprecated), key)
