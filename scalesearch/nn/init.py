"""Initialization schemes by name; each draws every weight once, in the order of the modules."""

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
    """Draw every weight of ``model`` by the scheme named ``scheme``.

    Raises:
        UserError: no such scheme.
    """
    if scheme not in INIT_SCHEMES:
        raise UserError(f"init: {scheme}: no such scheme; there are {', '.join(INIT_SCHEMES)}",
                        code="unknown-scheme")
    # a block may have no weights
    device = next((weight.device for weight in model.parameters()), "cpu")
    generator = torch.Generator(device=device).manual_seed(seed)
    with torch.no_grad():
        for path, node in model.named_modules():
            if isinstance(node, Module):
                for name, weight in list(node._parameters.items()):
                    _draw(node, path, name, weight, INIT_SCHEMES[scheme], generator)


def _draw(node: Module, path: str, name: str, weight: Tensor, matrix: Callable[..., None],
          generator: torch.Generator) -> None:
    """Draw one weight as :meth:`Block.start` says, or by the scheme's ``matrix``."""
    start = node.block.initialization(name)
    if start in ("table", "tokens"):
        weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
        if start == "tokens":
            weight[PAD] = 0
    elif start in ("one", "zero"):
        weight.fill_(float(start == "one"))
    elif start in ("cores", "table cores"):
        weight.normal_(0, chain_std(node.block, start, path)[0], generator=generator)
    else:
        for one in weight if start == "heads" else [weight]:
            matrix(node, path, name, one, generator)


def chain_std(block: Any, start: str, path: str) -> tuple[float, float]:
    """Standard deviations of a chain's cores and of the matrix that they make, which is that of a single one."""
    cores: ChainCores = block.cores
    rows = math.prod(cores.input_factors)
    columns = math.prod(cores.output_factors)
    n = len(cores.input_factors)
    variance = 1 / columns if start == "table cores" else 1 / rows if path == "output" else 2 / (
        rows + columns)
    return float((variance / cores.bond ** (n - 1)) ** (1 / (2 * n))), float(variance**0.5)


def xavier_init(node: Module, path: str, name: str, weight: Tensor,
                generator: torch.Generator) -> None:
    """Xavier-uniform matrices, zero biases; gain 1/√2 for queries, keys and values, as if one matrix.

    The second matrix of an adapter starts at zero, so that a layer starts as the shared one (Hu et
    al. 2022).
    """
    part = path.rsplit(".", 1)[-1]
    if name == "bias" or _is_adapter_output(path):
        weight.zero_()
    elif part == "output":
        # An untied output matrix is drawn as a tied one would be: logits start small.
        weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
    else:
        gain = 2**-0.5 if part in ATTENTION_INPUTS else 1.0
        torch.nn.init.xavier_uniform_(weight, gain, generator=generator)


def released_init(node: Module, path: str, name: str, weight: Tensor,
                  generator: torch.Generator) -> None:
    """The scheme of the code released with EdgeFormer and PartialFormer (one toolkit).

    Queries, keys, values and head gates Xavier with gain 1/√2; attention output Xavier with zero
    bias; FFNs, head scaling and adapters by torch's default.
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
    """Anthe's scheme: Glorot-uniform matrices, zero biases, orthogonal role matrices (its cores are rescaled)."""
    if name == "bias":
        weight.zero_()
    elif "role" in path.rsplit(".", 1)[-1]:
        torch.nn.init.orthogonal_(weight, generator=generator)
    else:
        torch.nn.init.xavier_uniform_(weight, generator=generator)


def torch_default_init(node: Module, path: str, name: str, weight: Tensor,
                       generator: torch.Generator) -> None:
    """Uniform in ±1/√fan_in, weights and biases alike: what ``torch.nn.Linear`` does."""
    bound = fan_in(node.block) ** -0.5
    weight.uniform_(-bound, bound, generator=generator)


def fan_in(block: Block) -> int:
    """The number of inputs of each output of a linear map."""
    shape = block.weights().get("weight")
    if shape is None:  # the bias of a chain
        return block.d_in  # type: ignore[attr-defined]
    inner = shape[2 if block.initialization("weight") == "heads" else 1 :]
    return math.prod(extent for extent in inner if isinstance(extent, int))


def _is_adapter_output(path: str) -> bool:
    parts = path.split(".")
    return len(parts) > 1 and parts[-1] == "up" and parts[-2].endswith("_adapter")


INIT_SCHEMES: dict[str, Callable[..., None]] = {
    "xavier": xavier_init, "released": released_init, "partialformer": released_init,
    "edgeformer": released_init, "anthe": anthe_init, "torch": torch_default_init}
