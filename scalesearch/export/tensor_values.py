"""Values of the tensor expressions of a lowering for the weights of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from scalesearch.blocks.embedding import sinusoidal_positions
from scalesearch.lowering.tensor_expressions import (
    BlockDiagonal,
    Concatenation,
    ConstantTensor,
    ContractedChain,
    HeadPadding,
    MatrixProduct,
    TensorExpression,
    TensorSum,
    TransposedMatrix,
    WeightRef,
)

CONSTANT_TENSORS: Mapping[str, Callable[[ConstantTensor], Tensor]] = {
    "zeros": lambda source: torch.zeros(source.shape),
    "ones": lambda source: torch.ones(source.shape),
    "identity": lambda source: torch.eye(*source.shape),
    "sinusoid": lambda source: sinusoidal_positions(torch.arange(source.shape[0]), source.shape[1],
                                                    torch.float32),
    "step": lambda source: sinusoidal_positions(torch.tensor(source.index), source.shape[0],
                                                torch.float32)}


def evaluate_source(source: TensorExpression, weights: Mapping[str, Any]) -> Tensor:
    """Compute the float32 tensor of an expression from a state dict."""
    match source:
        case WeightRef(name):
            weight: Tensor = weights[name]
            return weight.float()
        case ConstantTensor(name):
            return CONSTANT_TENSORS[name](source)
        case TransposedMatrix(of):
            return evaluate_source(of, weights).t()
        # In float64: a product of three factors must be as accurate as the model's.
        case MatrixProduct(left, right):
            return (evaluate_source(left, weights).double()
                    @ evaluate_source(right, weights).double()).float()
        case TensorSum(parts):
            first, *others = (evaluate_source(part, weights) for part in parts)
            return sum(others, first)
        case Concatenation(parts):
            return torch.cat([evaluate_source(part, weights) for part in parts])
        case HeadPadding(of, heads, size):
            rows = evaluate_source(of, weights).unflatten(0, (heads, -1))
            filled = rows.new_zeros(heads, size, *rows.shape[2:])
            filled[:, : rows.shape[1]] = rows
            return filled.flatten(0, 1)
        case BlockDiagonal(of):
            return torch.block_diag(*evaluate_source(of, weights))
        case ContractedChain(cores, parts, rows):
            return cores.matrix(
                [evaluate_source(part, weights).double() for part in parts])[0, :rows, :, 0].float()
