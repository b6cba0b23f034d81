"""Where the values of a runtime's variable come from: expressions over our weights, by name.

Weights go by the name of their owner, so equal expressions are equal values, whatever layers share.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from scalesearch.blocks.core import Block, Repeat, Size, Use
from scalesearch.blocks.embedding import FactorizedEmbedding, FactorizedOutput
from scalesearch.blocks.leaves import Embedding, Linear, TransposedLinear, UnsavedLinear
from scalesearch.blocks.maps.chain_cores import ChainCores
from scalesearch.blocks.maps.linear_factories import LowRankLinear, Passthrough
from scalesearch.blocks.maps.structured_matrices import GroupLinear, KroneckerEmbedding
from scalesearch.blocks.maps.tensor_chains import (
    ChainEmbedding,
    ChainLinear,
    ChainLinearBase,
    ChainTableBase,
    TiedChainOutput,
)
from scalesearch.blocks.sizes import require_single_value, size_key
from scalesearch.blocks.weight_sharing import CrossStackTie


@dataclass(frozen=True)
class Weight:
    """A weight of the model, by its owner's name in the state dict."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A constant: ``zeros``, ``ones``, ``identity``, ``sinusoid`` (of rows, of features) or ``step`` (of one layer)."""

    kind: str
    shape: tuple[Size, ...]
    index: int = 0  # of a step's layer


@dataclass(frozen=True)
class Flipped:
    """A matrix, transposed."""

    of: Source


@dataclass(frozen=True)
class Product:
    """The matrix product of two."""

    left: Source
    right: Source


@dataclass(frozen=True)
class Sum:
    """A sum of equal shapes; a vector adds to each row of a matrix."""

    parts: tuple[Source, ...]


@dataclass(frozen=True)
class Joined:
    """Parts one behind the other, along the first axis."""

    parts: tuple[Source, ...]


@dataclass(frozen=True)
class Padded:
    """Rows in groups, one a head, each group filled with zeros to ``size`` rows."""

    of: Source
    heads: Size
    size: Size


@dataclass(frozen=True)
class Contracted:
    """The matrix that a tensor chain stands for, or its first ``rows``."""

    cores: ChainCores
    parts: tuple[Source, ...]
    rows: Any = None


@dataclass(frozen=True)
class Diagonal:
    """A matrix with the matrices of ``of``, along its first axis, on its diagonal, and zeros elsewhere."""

    of: Source


Source: TypeAlias = Weight | Constant | Flipped | Product | Sum | Joined | Padded | Contracted | Diagonal

# Lookups, and outputs, that are one matrix of all tokens.
TABLES = (Embedding, ChainEmbedding, KroneckerEmbedding, FactorizedEmbedding)
OUTPUTS = (Linear, ChainLinear, LowRankLinear, FactorizedOutput, TiedChainOutput)


def key(source: Any) -> Hashable:
    """A value that is equal for expressions of equal values; sizes may be a population's."""
    if isinstance(source, tuple):
        return tuple(map(key, source))
    if isinstance(source, Weight):
        return source.name
    if isinstance(source, Contracted):
        return "Contracted", key(source.parts)
    if hasattr(source, "__dataclass_fields__"):
        return type(source).__name__, *(key(getattr(source, field.name)) for field in fields(source))
    return source if isinstance(source, str) else size_key(source)


class Owners:
    """Names of the weights of one stack's layers, by their owners."""

    def __init__(self, path: str, layers: Repeat) -> None:
        self.path, self.depth = path, require_single_value(layers.depth)
        self._ties = {tie.part: tie for tie in layers.ties}

    def name(self, layer: int, part: str, weight: str) -> str:
        """Name of the owner of ``weight`` (a path) of a layer's ``part``."""
        tie, path = self._ties.get(part), f"{self.path}.{layer}.{part}"
        inner, _, last = weight.rpartition(".")
        if tie is not None and not tie.excludes(inner, last):
            lent = tie.schedule
            path = (f"{lent.path}.{lent.layers[layer]}.{lent.part}" if isinstance(lent, CrossStackTie) else
                    f"{self.path}.{lent.owners(self.depth)[layer]}.{part}")
        return f"{path}.{weight}"


def matrix(part: Block | Use, path: str) -> Source | None:
    """The matrix (d_out, d_in) of the linear map at ``path``; None if it is none."""
    block = part.block if isinstance(part, Use) else part
    if type(block) in (Linear, UnsavedLinear):
        return Weight(f"{path}.weight")
    if isinstance(block, LowRankLinear):
        return Product(Weight(f"{path}.up.weight"), Weight(f"{path}.down.weight"))
    if type(block) is GroupLinear:
        return Diagonal(Weight(f"{path}.weight"))
    if type(block) is TransposedLinear:
        return Flipped(Weight(f"{path}.weight"))
    if isinstance(block, TiedChainOutput):
        return _chain(block.table, path)
    if isinstance(block, ChainLinearBase):
        return Flipped(_chain(block, path))
    return Constant("identity", (block.d,)) if type(block) is Passthrough else None


def bias(part: Block | Use, path: str) -> Source | None:
    """The bias of the linear map at ``path``; None if it has none."""
    block = part.block if isinstance(part, Use) else part
    if not getattr(block, "bias", False):
        return None
    return Weight(f"{path}.up.bias" if isinstance(block, LowRankLinear) else f"{path}.bias")


def table(block: Block, path: str, vocab: Size | None) -> Source | None:
    """The table (tokens, features) of the lookup at ``path``; None if it is none."""
    block = bound(block, vocab)
    if type(block) is Embedding:
        return Weight(f"{path}.weight")
    if isinstance(block, ChainTableBase):
        return _chain(block, path)
    if type(block) is FactorizedEmbedding:
        inner = table(block.table, f"{path}.table", vocab)
        return inner and Product(inner, Flipped(Weight(f"{path}.up.weight")))
    return None


def bound(block: Block, vocab: Size | None) -> Block:
    """``block`` for a vocabulary; as it is where blocks hold their own."""
    return block if vocab is None else block.bind_vocabulary(vocab)


def output(use: Use, vocab: Size | None) -> tuple[Source | None, Source | None]:
    """Matrix (tokens, features) and bias of what makes scores of states; no matrix if it is no linear map."""
    if type(use.block) is FactorizedOutput:  # the table's two matrices, the other way round
        path = use.block.tied_table
        return Product(Weight(f"{path}.table.weight"), Flipped(Weight(f"{path}.up.weight"))), None
    path, block = use.tied or "output", bound(use.block, vocab)
    return matrix(block, path), bias(block, path)


def _chain(block: ChainLinearBase | ChainTableBase, path: str) -> Source:
    parts = tuple(Weight(f"{path}.core{i}") for i in range(len(block.cores.input_factors)))
    return Contracted(block.cores, parts, getattr(block, "vocab", None))
