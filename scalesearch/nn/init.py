"""Initialization schemes.

A scheme initializes every weight once, in the order of the modules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scalesearch.blocks.core import PAD, Block
from scalesearch.blocks.maps.chain_cores import ChainCores
from scalesearch.errors import UserError
from scalesearch.nn.module import Module

ATTENTION_INPUTS = ("query", "key", "value")


def initialize(model: Module, scheme: str, seed: int) -> None:
    """Initialize every weight of ``model`` according to ``Block.initialization``.

    Args:
        model: the model.
        scheme: a key of ``INIT_SCHEMES``.
        seed: seed of the random numbers.

    Raises:
        UserError: the scheme does not exist.
    """
    if scheme not in INIT_SCHEMES:
        raise UserError(f"init: {scheme}: unknown scheme; use {', '.join(INIT_SCHEMES)}",
                        code="unknown-scheme")
    initialize_matrix = INIT_SCHEMES[scheme]
    # a block may have no weights
    device = next((weight.device for weight in model.parameters()), "cpu")
    generator = torch.Generator(device=device).manual_seed(seed)
    with torch.no_grad():
        for path, node in model.named_modules():
            if isinstance(node, Module):
                for name, weight in list(node._parameters.items()):
                    initialization = node.block.initialization(name)
                    if initialization in ("table", "tokens"):
                        weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
                        if initialization == "tokens":
                            weight[PAD] = 0
                    elif initialization in ("one", "zero"):
                        weight.fill_(float(initialization == "one"))
                    elif initialization in ("cores", "table cores"):
                        std, _ = chain_std(node.block, initialization, path)
                        weight.normal_(0, std, generator=generator)
                    else:
                        parts = weight if initialization == "heads" else (weight,)
                        for part in parts:
                            initialize_matrix(node, path, name, part, generator)


def chain_std(block: Any, initialization: str, path: str) -> tuple[float, float]:
    """Return the standard deviations of the cores of a tensor chain and of its matrix.

    The matrix has the variance of a matrix that is initialized directly.

    Args:
        block: block of the chain.
        initialization: ``cores`` or ``table cores``.
        path: path of the module.
    """
    cores: ChainCores = block.cores
    rows = math.prod(cores.input_factors)
    columns = math.prod(cores.output_factors)
    n = len(cores.input_factors)
    if initialization == "table cores":
        variance = 1 / columns
    else:
        variance = 1 / rows if path == "output" else 2 / (rows + columns)
    return float((variance / cores.bond ** (n - 1)) ** (1 / (2 * n))), float(variance**0.5)


def xavier_init(node: Module, path: str, name: str, weight: Tensor,
                generator: torch.Generator) -> None:
    """Initialize matrices by Xavier-uniform, biases with zero.

    The gain is 1/√2 for queries, keys and values, as for their concatenated matrix. The second
    matrix of an adapter is zero, so that layers are initially equal to the shared layer (Hu et al.
    2022).
    """
    *parents, part = path.split(".")
    is_adapter_output = part == "up" and bool(parents) and parents[-1].endswith("_adapter")
    if name == "bias" or is_adapter_output:
        weight.zero_()
    elif part == "output":
        # An untied output matrix is initialized like a tied one, so that logits are small.
        weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
    else:
        gain = 2**-0.5 if part in ATTENTION_INPUTS else 1.0
        torch.nn.init.xavier_uniform_(weight, gain, generator=generator)


def released_init(node: Module, path: str, name: str, weight: Tensor,
                  generator: torch.Generator) -> None:
    """Initialize as the released code of EdgeFormer and PartialFormer.

    Xavier-uniform with gain 1/√2 for queries, keys, values and head gates; Xavier-uniform with zero
    bias for the output of attention; PyTorch's default for networks, head scaling and adapters.
    """
    part = path.rsplit(".", 1)[-1]
    if path.endswith("partial.gate") and name == "weight":
        torch.nn.init.xavier_uniform_(weight, 2**-0.5, generator=generator)
    elif part in (*ATTENTION_INPUTS, "out", "output") and name == "weight":
        xavier_init(node, path, name, weight, generator)
    elif part in ("out", "output"):
        weight.zero_()
    else:
        torch_default_init(node, path, name, weight, generator)


def anthe_init(node: Module, path: str, name: str, weight: Tensor,
               generator: torch.Generator) -> None:
    """Initialize as Anthe.

    Glorot-uniform matrices, orthogonal role matrices, zero biases.
    """
    if name == "bias":
        weight.zero_()
    elif "role" in path.rsplit(".", 1)[-1]:
        torch.nn.init.orthogonal_(weight, generator=generator)
    else:
        torch.nn.init.xavier_uniform_(weight, generator=generator)


def torch_default_init(node: Module, path: str, name: str, weight: Tensor,
                       generator: torch.Generator) -> None:
    """Initialize weights and biases uniformly in ±1/√fan_in, as ``torch.nn.Linear``."""
    bound = fan_in(node.block) ** -0.5
    weight.uniform_(-bound, bound, generator=generator)


def fan_in(block: Block) -> int:
    """Return the number of inputs of each output of a linear map."""
    shape = block.weights().get("weight")
    if shape is None:  # the bias of a chain
        return block.d_in  # type: ignore[attr-defined]
    inner = shape[2 if block.initialization("weight") == "heads" else 1 :]
    return math.prod(extent for extent in inner if isinstance(extent, int))


INIT_SCHEMES: dict[str, Callable[..., None]] = {
    "xavier": xavier_init, "released": released_init, "partialformer": released_init,
    "edgeformer": released_init, "anthe": anthe_init, "torch": torch_default_init}
