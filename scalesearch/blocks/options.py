"""Fields of blocks with a meaning beyond the block: keys of the space language, names in identities; registries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from scalesearch.blocks.core import Block, Site

OPTION_KINDS = ("size", "word", "flag", "number")


@dataclass(frozen=True)
class Option:
    """A key of the space language that a block class brings: see :func:`option`."""

    default: str
    kind: str
    among: tuple[Any, ...]
    low: int | None
    high: int | None
    doc: str

    def __post_init__(self) -> None:
        if self.kind not in OPTION_KINDS:
            raise ValueError(f"an option's kind is one of {', '.join(OPTION_KINDS)}, not {self.kind}")
        if self.kind == "word" and not self.among:
            raise ValueError("an option of kind word says its words: among=(…)")


def option(default: str, *, kind: str = "size", among: tuple[Any, ...] = (), low: int | None = None,
           high: int | None = None, doc: str = "") -> Any:
    """A block field that is a key of the space language.

    Args:
        default: its value where none is given, in the language: ``"4"``, ``"yes"``, ``"= 4 * width"``.
        kind: ``size`` (a whole number), ``number``, ``word`` or ``flag`` (a bool).
        among: the legal words, or the only legal sizes.
        low, high: bounds of a size, both included; 1 and none unless said.
        doc: one line for help texts and the reference.
    """
    return field(metadata={"option": Option(default, kind, among, low, high, doc)}, kw_only=True)


def named(identity: str) -> Any:
    """A block field with another name in identities.

    A field renamed this way changes no ``Architecture.id``.
    """
    return field(metadata={"identity": identity})


def options(kind: type[Block] | type[Site]) -> dict[str, Option]:
    """The fields of a class of blocks or sites that are keys of the space language, by name."""
    return {f.name: f.metadata["option"] for f in fields(kind) if "option" in f.metadata}  # type: ignore[arg-type]


Kind = TypeVar("Kind", bound="type[Block] | type[Site]")


def registered(kinds: dict[str, Any], name: str) -> Callable[[Kind], Kind]:
    """Decorate a block class to stand in the registry ``kinds`` under ``name``.

    Raises:
        ValueError: a kind or a class of that name is there; identities know a class by its name.
    """

    def register(kind: Kind) -> Kind:
        classes = {other.__name__ for other in kinds.values()}
        if name in kinds or kind.__name__ in classes:
            raise ValueError(f"{name}: a kind or a class {kind.__name__} is registered already")
        kinds[name] = kind
        return kind

    return register
