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
class WeightRef:
    """A weight of the model, by its owner's name in the state dict."""

    name: str


@dataclass(frozen=True)
class ConstantTensor:
    """A constant: ``zeros``, ``ones``, ``identity``, ``sinusoid`` (of rows, of features) or ``step`` (of one layer)."""

    type: str
    shape: tuple[Size, ...]
    index: int = 0  # of a step's layer


@dataclass(frozen=True)
class TransposedMatrix:
    """A matrix, transposed."""

    matrix: TensorExpression


@dataclass(frozen=True)
class MatrixProduct:
    """The matrix product of two."""

    left: TensorExpression
    right: TensorExpression


@dataclass(frozen=True)
class TensorSum:
    """A sum of equal shapes; a vector adds to each row of a matrix."""

    parts: tuple[TensorExpression, ...]


@dataclass(frozen=True)
class Concatenation:
    """Parts one behind the other, along the first axis."""

    parts: tuple[TensorExpression, ...]


@dataclass(frozen=True)
class HeadPadding:
    """Rows in groups, one a head, each group filled with zeros to ``size`` rows."""

    matrix: TensorExpression
    heads: Size
    size: Size


@dataclass(frozen=True)
class ContractedChain:
    """The matrix that a tensor chain stands for, or its first ``rows``."""

    cores: ChainCores
    parts: tuple[TensorExpression, ...]
    rows: Any = None


@dataclass(frozen=True)
class BlockDiagonal:
    """A matrix with the matrices of ``matrices``, along its first axis, on its diagonal, and zeros elsewhere."""

    matrices: TensorExpression


TensorExpression: TypeAlias = (WeightRef | ConstantTensor | TransposedMatrix | MatrixProduct
                               | TensorSum | Concatenation | HeadPadding | ContractedChain
                               | BlockDiagonal)

# Lookups, and outputs, that are one matrix of all tokens.
SUPPORTED_TABLES = (Embedding, ChainEmbedding, KroneckerEmbedding, FactorizedEmbedding)
SUPPORTED_OUTPUTS = (Linear, ChainLinear, LowRankLinear, FactorizedOutput, TiedChainOutput)


def sharing_key(source: Any) -> Hashable:
    """A value that is equal for expressions of equal values; sizes may be a population's."""
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
    """Names of the weights of one stack's layers, by their owners."""

    def __init__(self, path: str, layers: Repeat) -> None:
        self.path = path
        self.depth = require_single_value(layers.depth)
        self._ties = {tie.part: tie for tie in layers.ties}

    def owner_name(self, layer: int, part: str, weight: str) -> str:
        """Name of the owner of ``weight`` (a path) of a layer's ``part``."""
        tie = self._ties.get(part)
        path = f"{self.path}.{layer}.{part}"
        inner, _, last = weight.rpartition(".")
        if tie is not None and not tie.excludes(inner, last):
            lent = tie.schedule
            path = (f"{lent.path}.{lent.layers[layer]}.{lent.part}"
                    if isinstance(lent, CrossStackTie)
                    else f"{self.path}.{lent.owners(self.depth)[layer]}.{part}")
        return f"{path}.{weight}"


def matrix_expression(part: Block | Use, path: str) -> TensorExpression | None:
    """The matrix (d_out, d_in) of the linear map at ``path``; None if it is none."""
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
    """The bias of the linear map at ``path``; None if it has none."""
    block = part.block if isinstance(part, Use) else part
    if not getattr(block, "bias", False):
        return None
    return WeightRef(f"{path}.up.bias" if isinstance(block, LowRankLinear) else f"{path}.bias")


def table_expression(block: Block, path: str, vocab: Size | None) -> TensorExpression | None:
    """The table (tokens, features) of the lookup at ``path``; None if it is none."""
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
    """``block`` for a vocabulary; as it is where blocks hold their own."""
    return block if vocab is None else block.bind_vocabulary(vocab)


def output_expressions(
        use: Use, vocab: Size | None) -> tuple[TensorExpression | None, TensorExpression | None]:
    """Matrix (tokens, features) and bias of what makes scores of states; no matrix if it is no linear map."""
    if type(use.block) is FactorizedOutput:  # the table's two matrices, the other way round
        path = use.block.tied_table
        return MatrixProduct(WeightRef(f"{path}.table.weight"),
                             TransposedMatrix(WeightRef(f"{path}.up.weight"))), None
    path = use.tied or "output"
    block = bind_vocabulary(use.block, vocab)
    return matrix_expression(block, path), bias_expression(block, path)


def _chain_expression(block: ChainLinearBase | ChainTableBase, path: str) -> TensorExpression:
    parts = tuple(WeightRef(f"{path}.core{i}") for i in range(len(block.cores.input_factors)))
    return ContractedChain(block.cores, parts, getattr(block, "vocab", None))
