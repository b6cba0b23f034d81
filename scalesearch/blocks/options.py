"""Fields of blocks with a meaning beyond the block: keys of the space language, names in identities; registries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from scalesearch.blocks.core import Block, LinearFactory

OPTION_TYPES = ("size", "word", "flag", "number")


@dataclass(frozen=True)
class Option:
    """A key of the space language that a block class brings: see :func:`option_field`."""

    default: str
    type: str
    choices: tuple[Any, ...]
    minimum: int | None
    maximum: int | None
    doc: str

    def __post_init__(self) -> None:
        if self.type not in OPTION_TYPES:
            raise ValueError(f"an option's kind is one of {', '.join(OPTION_TYPES)}, not "
                             f"{self.type}")
        if self.type == "word" and not self.choices:
            raise ValueError("an option of kind word says its words: among=(…)")


def option_field(default: str, *, type: str = "size", choices: tuple[Any, ...] = (),
                 minimum: int | None = None, maximum: int | None = None, doc: str = "") -> Any:
    """A block field that is a key of the space language.

    Args:
        default: its value where none is given, in the language: ``"4"``, ``"yes"``, ``"= 4 *
            width"``.
        type: ``size`` (a whole number), ``number``, ``word`` or ``flag`` (a bool).
        choices: the legal words, or the only legal sizes.
        minimum, maximum: bounds of a size, both included; 1 and none unless said.
        doc: one line for help texts and the reference.
    """
    return field(metadata={"option": Option(default, type, choices, minimum, maximum, doc)},
                 kw_only=True)


def identity_field(identity: str) -> Any:
    """A block field with another name in identities.

    A field renamed this way changes no ``Architecture.id``.
    """
    return field(metadata={"identity": identity})


def option_fields(cls: type[Block] | type[LinearFactory]) -> dict[str, Option]:
    """The fields of a class of blocks or sites that are keys of the space language, by name."""
    return {f.name: f.metadata["option"] for f in fields(cls) if "option" in f.metadata}  # type: ignore[arg-type]


BlockType = TypeVar("Kind", bound="type[Block] | type[Site]")


def register(registry: dict[str, Any], name: str) -> Callable[[BlockType], BlockType]:
    """Decorate a block class to stand in the registry ``registry`` under ``name``.

    Raises:
        ValueError: a kind or a class of that name is there; identities know a class by its name.
    """

    def register(kind: BlockType) -> BlockType:
        classes = {other.__name__ for other in registry.values()}
        if name in registry or kind.__name__ in classes:
            raise ValueError(f"{name}: a kind or a class {kind.__name__} is registered already")
        registry[name] = kind
        return kind

    return register
