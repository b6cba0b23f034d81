"""Expressions of the weights of a model that define the variables of a runtime.

Weights have the names of their owners, so that shared weights have equal expressions.
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
class WeightRef:
    """A weight of the model, by the name of its owner in the state dict."""

    name: str


@dataclass(frozen=True)
class ConstantTensor:
    """A constant.

    Attributes:
        type: ``zeros``, ``ones``, ``identity``, a type of sinusoidal positions (rows, features) or
            ``step``, the step signal of a layer.
        shape: its shape.
        index: index of the layer of a step signal.
    """

    type: str
    shape: tuple[Size, ...]
    index: int = 0


@dataclass(frozen=True)
class TransposedMatrix:
    """A transposed matrix."""

    matrix: TensorExpression


@dataclass(frozen=True)
class MatrixProduct:
    """A product of two matrices."""

    left: TensorExpression
    right: TensorExpression


@dataclass(frozen=True)
class TensorSum:
    """A sum of tensors; a vector is added to each row of a matrix."""

    parts: tuple[TensorExpression, ...]


@dataclass(frozen=True)
class Concatenation:
    """A concatenation along the first axis."""

    parts: tuple[TensorExpression, ...]


@dataclass(frozen=True)
class HeadPadding:
    """A matrix with the rows of each head padded with zeros to ``size`` rows."""

    matrix: TensorExpression
    heads: Size
    size: Size


@dataclass(frozen=True)
class ContractedChain:
    """The matrix of a tensor chain, or its first ``rows`` rows."""

    cores: ChainCores
    parts: tuple[TensorExpression, ...]
    rows: Any = None


@dataclass(frozen=True)
class BlockDiagonal:
    """A block-diagonal matrix of ``matrices`` (blocks, rows, columns)."""

    matrices: TensorExpression


TensorExpression: TypeAlias = (WeightRef | ConstantTensor | TransposedMatrix | MatrixProduct
                               | TensorSum | Concatenation | HeadPadding | ContractedChain
                               | BlockDiagonal)

# Tables and output layers that can be converted to one matrix.
SUPPORTED_TABLES = (Embedding, ChainEmbedding, KroneckerEmbedding, FactorizedEmbedding)
SUPPORTED_OUTPUTS = (Linear, ChainLinear, LowRankLinear, FactorizedOutput, TiedChainOutput)


def sharing_key(source: Any) -> Hashable:
    """Return a value that is equal for equal expressions.

    Sizes may be those of a population.
    """
    if isinstance(source, tuple):
        return tuple(map(sharing_key, source))
    if isinstance(source, WeightRef):
        return source.name
    if isinstance(source, ContractedChain):
        return "Contracted", sharing_key(source.parts)
    if hasattr(source, "__dataclass_fields__"):
        return type(source).__name__, *(sharing_key(getattr(source, field.name))
                                        for field in fields(source))
    return source if isinstance(source, str) else size_key(source)


class WeightOwners:
    """Names of the owners of the weights of the layers of a stack."""

    def __init__(self, path: str, layers: Repeat) -> None:
        self.path = path
        self.depth = require_single_value(layers.depth)
        self._ties = {tie.part: tie for tie in layers.ties}

    def owner_name(self, layer: int, part: str, weight: str) -> str:
        """Return the name of the owner of a weight.

        Args:
            layer: index of the layer.
            part: name of the part of the layer.
            weight: path of the weight in the part.
        """
        tie = self._ties.get(part)
        path = f"{self.path}.{layer}.{part}"
        inner, _, last = weight.rpartition(".")
        if tie is not None and not tie.excludes(inner, last):
            schedule = tie.schedule
            if isinstance(schedule, CrossStackTie):
                path = f"{schedule.path}.{schedule.layers[layer]}.{schedule.part}"
            else:
                path = f"{self.path}.{schedule.owners(self.depth)[layer]}.{part}"
        return f"{path}.{weight}"


def matrix_expression(part: Block | Use, path: str) -> TensorExpression | None:
    """Return the matrix (d_out, d_in) of the map at ``path``, or None."""
    block = part.block if isinstance(part, Use) else part
    if type(block) in (Linear, UnsavedLinear):
        return WeightRef(f"{path}.weight")
    if isinstance(block, LowRankLinear):
        return MatrixProduct(WeightRef(f"{path}.up.weight"), WeightRef(f"{path}.down.weight"))
    if type(block) is GroupLinear:
        return BlockDiagonal(WeightRef(f"{path}.weight"))
    if type(block) is TransposedLinear:
        return TransposedMatrix(WeightRef(f"{path}.weight"))
    if isinstance(block, TiedChainOutput):
        return _chain_expression(block.table, path)
    if isinstance(block, ChainLinearBase):
        return TransposedMatrix(_chain_expression(block, path))
    return ConstantTensor("identity", (block.d,)) if type(block) is Passthrough else None


def bias_expression(part: Block | Use, path: str) -> TensorExpression | None:
    """Return the bias of the linear map at ``path``, or None."""
    block = part.block if isinstance(part, Use) else part
    if not getattr(block, "bias", False):
        return None
    return WeightRef(f"{path}.up.bias" if isinstance(block, LowRankLinear) else f"{path}.bias")


def table_expression(block: Block, path: str, vocab: Size | None) -> TensorExpression | None:
    """Return the table (tokens, features) of the block at ``path``, or None."""
    block = bind_vocabulary(block, vocab)
    if type(block) is Embedding:
        return WeightRef(f"{path}.weight")
    if isinstance(block, ChainTableBase):
        return _chain_expression(block, path)
    if type(block) is FactorizedEmbedding:
        inner = table_expression(block.table, f"{path}.table", vocab)
        return inner and MatrixProduct(inner, TransposedMatrix(WeightRef(f"{path}.up.weight")))
    return None


def bind_vocabulary(block: Block, vocab: Size | None) -> Block:
    """Return ``block`` with a vocabulary; None: it has one already."""
    return block if vocab is None else block.bind_vocabulary(vocab)


def output_expressions(
        use: Use, vocab: Size | None) -> tuple[TensorExpression | None, TensorExpression | None]:
    """Return matrix (tokens, features) and bias of an output layer; each can be None."""
    if type(use.block) is FactorizedOutput:  # the two matrices of the table
        path = use.block.tied_table
        bias = WeightRef("output.table.bias") if use.block.bias else None
        return MatrixProduct(WeightRef(f"{path}.table.weight"),
                             TransposedMatrix(WeightRef(f"{path}.up.weight"))), bias
    block = bind_vocabulary(use.block, vocab)
    return matrix_expression(block, use.tied or "output"), bias_expression(block, "output")


def _chain_expression(block: ChainLinearBase | ChainTableBase, path: str) -> TensorExpression:
    parts = tuple(WeightRef(f"{path}.core{i}") for i in range(len(block.cores.input_factors)))
    return ContractedChain(block.cores, parts, getattr(block, "vocab", None))
