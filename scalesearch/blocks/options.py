"""Options of block classes, names of classes and fields in identities, registries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from scalesearch.blocks.core import Block, LinearFactory

OPTION_TYPES = ("size", "word", "flag", "number")

# Names of classes and fields in identities, if they differ from those in the code. Architecture ids
# are hashes that include these names (see core.canonical_config). If you rename a class or a field,
# add its first name here: otherwise the ids of all architectures that use it would change, and
# stored results could not be found.
IDENTITY_NAMES = {
    "AdaptiveEmbedding": "AdaptiveTable",
    "BottleneckStack": "WaistedStack",
    "DExTraAttention": "Lifted",
    "DExTraEmbedding": "LiftedTable",
    "DualMixer": "Branches",
    "EvolvedBranches": "TwoBranches",
    "FactorizedEmbedding": "FactorisedTable",
    "FactorizedOutput": "FactorisedOutput",
    "GatedCrossAttention": "GatedCross",
    "GatedLinearUnit": "GatedLinear",
    "KroneckerEmbedding": "KroneckerTable",
    "LowRankLinear": "Factors",
    "MovingAverageMixer": "Average",
    "MultiPathConfig": "Paths",
    "ProjectedCrossAttention": "Bridged",
    "ProjectedOutput": "LiftedOutput",
    "TiedChainOutput": "TableOutput",
    # fields, with the class that defines them
    "AdaptiveOutput.tied_table": "path",
    "Attention.adapter_rank": "rank",
    "Attention.expands_heads": "expand",
    "Attention.head_ffn": "partial",
    "Attention.mask_distance": "mask",
    "Attention.output_factory": "out_site",
    "Attention.projected_axis": "projected",
    "Attention.prompt_length": "prompt",
    "Attention.residual_scores": "residual",
    "AttentiveEmbedding.tied_table": "tied",
    "BottleneckStack.final_norm": "last_norm",
    "BottleneckStack.step_signals": "steps",
    "DExTraEmbedding.tied_table": "tied",
    "DecoderLayer.mixer": "self_attention",
    "EncoderLayer.mixer": "attention",
    "FFN.linear_factory": "site",
    "FFN.norm_type": "normed",
    "FactorizedOutput.tied_table": "path",
    "GatedCrossAttention.projected_axis": "projected",
    "Layer.extra_sublayers": "more",
    "Layer.multi_path": "paths",
    "Layer.parallel_mixer": "parallel",
    "Layer.sublayer_order": "order",
    "Mixer.decoder": "cached",
    "Mixer.linear_factory": "site",
    "MultiPathConfig.target": "of",
    "ProjectedOutput.tied_table": "path",
    "Stack.final_norm": "last_norm",
    "Stack.global_scores": "scores",
    "Stack.step_signals": "steps",
    "TokenEmbedding.tied_table": "tied",
}


@dataclass(frozen=True)
class Option:
    """A key of a block class in the space language; see :func:`option_field`."""

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
            raise ValueError("an option of type word needs choices=(…)")


def option_field(default: str, *, type: str = "size", choices: tuple[Any, ...] = (),
                 minimum: int | None = None, maximum: int | None = None, doc: str = "") -> Any:
    """Define a field of a block that is also a key of the space language.

    Args:
        default: default value in the space language: ``"4"``, ``"yes"``, ``"= 4 * width"``.
        type: ``size`` (an int), ``number``, ``word`` or ``flag`` (a bool).
        choices: the allowed words, or the allowed sizes.
        minimum: smallest size; 1 by default.
        maximum: largest size; unbounded by default.
        doc: one line for help texts and the reference.
    """
    return field(metadata={"option": Option(default, type, choices, minimum, maximum, doc)},
                 kw_only=True)


def option_fields(cls: type[Block] | type[LinearFactory]) -> dict[str, Option]:
    """Return the options of a class of blocks or linear factories by field name."""
    dataclass_fields = fields(cls)  # type: ignore[arg-type]
    return {f.name: f.metadata["option"] for f in dataclass_fields if "option" in f.metadata}


BlockType = TypeVar("BlockType", bound="type[Block] | type[LinearFactory]")


def register(registry: dict[str, Any], name: str) -> Callable[[BlockType], BlockType]:
    """Return a decorator that adds a block class to ``registry`` under ``name``.

    A class replaces an earlier one with the same name and module: a notebook cell may run twice.

    Raises:
        ValueError: the name or the class name is already in use; identities contain class names.
    """

    def decorate(cls: BlockType) -> BlockType:
        earlier = registry.get(name)
        if earlier and ((earlier.__module__, earlier.__qualname__)
                        == (cls.__module__, cls.__qualname__)):
            registry[name] = cls
            return cls
        classes = {identity_name(other) for other in registry.values()}
        if name in registry or identity_name(cls) in classes:
            raise ValueError(f"{name}: the name or a class {cls.__name__} is already registered")
        registry[name] = cls
        return cls

    return decorate


def identity_name(cls: type[Any], field: str | None = None) -> str:
    """Return the name of a class, or of one of its fields, in identities."""
    if field is None:
        return IDENTITY_NAMES.get(cls.__name__, cls.__name__)
    for base in cls.__mro__:
        if (name := IDENTITY_NAMES.get(f"{base.__name__}.{field}")) is not None:
            return name
    return field
