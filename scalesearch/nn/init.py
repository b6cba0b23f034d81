"""Initialisation schemes by name; each draws every weight once, in the order of the modules."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from scalesearch.blocks.adapt import Prompt
from scalesearch.blocks.chains import ChainEmbedding, ChainLinear
from scalesearch.blocks.leaves import Convolution, Embedding, LayerNorm, PositionTable
from scalesearch.blocks.sites import HeadLinear
from scalesearch.errors import UserError
from scalesearch.nn.module import Module

ATTENTION_INPUTS = ("query", "key", "value")


def initialise(model: Module, scheme: str, seed: int) -> None:
    """Draw every weight of ``model`` by the scheme named ``scheme``.

    Raises:
        UserError: no such scheme.
    """
    if scheme not in SCHEMES:
        raise UserError(f"init: {scheme}: no such scheme; there are {', '.join(SCHEMES)}")
    device = next((weight.device for weight in model.parameters()), "cpu")  # a block may have no weights
    generator = torch.Generator(device=device).manual_seed(seed)
    with torch.no_grad():
        for path, node in model.named_modules():
            if isinstance(node, Module):
                for name, weight in list(node._parameters.items()):
                    _draw(node, path, name, weight, SCHEMES[scheme], generator)


def _draw(
    node: Module,
    path: str,
    name: str,
    weight: Tensor,
    matrix: Callable[..., None],
    generator: torch.Generator,
) -> None:
    """Tables and prompts are N(0, 1/d) with a zero row for padding, norms the identity; the rest is the scheme's."""
    if isinstance(node.block, Embedding | PositionTable | Prompt):
        weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
        if isinstance(node.block, Embedding):
            weight[0] = 0
    elif isinstance(node.block, LayerNorm):
        weight.fill_(1.0 if name == "weight" else 0.0)
    elif name.startswith("core"):
        weight.normal_(0, _core_std(node.block, path), generator=generator)
    elif isinstance(node.block, HeadLinear) and weight.ndim == 3:
        for head in weight:
            matrix(node, path, name, head, generator)
    else:
        matrix(node, path, name, weight, generator)


def _core_std(block: object, path: str) -> float:
    """Of a chain's cores, such that the matrix has the variance that it would have if it were one."""
    assert isinstance(block, ChainLinear | ChainEmbedding)
    cores = block.cores
    rows, columns = math.prod(cores.a), math.prod(cores.c)
    table = isinstance(block, ChainEmbedding)
    variance = 1 / columns if table else 1 / rows if path == "output" else 2 / (rows + columns)
    n = len(cores.a)
    return float((variance / cores.bond ** (n - 1)) ** (1 / (2 * n)))


def xavier(node: Module, path: str, name: str, weight: Tensor, generator: torch.Generator) -> None:
    """Xavier-uniform matrices, with gain 1/√2 for queries, keys and values (as if the three were one); zero biases.

    The second matrix of an adapter starts at zero, so that a layer starts as the shared one (Hu et al. 2022).
    """
    part = path.rsplit(".", 1)[-1]
    if name == "bias" or _adapters_end(path):
        weight.zero_()
    elif part == "output":
        # An untied output matrix is drawn as a tied one would be: logits start small.
        weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
    else:
        gain = 2**-0.5 if part in ATTENTION_INPUTS else 1.0
        torch.nn.init.xavier_uniform_(weight, gain, generator=generator)


def released(node: Module, path: str, name: str, weight: Tensor, generator: torch.Generator) -> None:
    """As in the code released with EdgeFormer and PartialFormer (both on one toolkit).

    Queries, keys, values and head gates Xavier with gain 1/√2; attention output Xavier with zero bias; FFNs, head
    scaling and adapters by torch's default.
    """
    part = path.rsplit(".", 1)[-1]
    if path.endswith("partial.gate") and name == "weight":
        torch.nn.init.xavier_uniform_(weight, 2**-0.5, generator=generator)
    elif part in (*ATTENTION_INPUTS, "out", "output") and name == "weight":
        xavier(node, path, name, weight, generator)
    elif part in ("out", "output"):
        weight.zero_()
    else:
        torch_default(node, path, name, weight, generator)


def anthe(node: Module, path: str, name: str, weight: Tensor, generator: torch.Generator) -> None:
    """As in Anthe's code: Glorot-uniform matrices, zero biases, orthogonal role matrices (its cores are rescaled)."""
    if name == "bias":
        weight.zero_()
    elif "role" in path.rsplit(".", 1)[-1]:
        torch.nn.init.orthogonal_(weight, generator=generator)
    else:
        torch.nn.init.xavier_uniform_(weight, generator=generator)


def torch_default(node: Module, path: str, name: str, weight: Tensor, generator: torch.Generator) -> None:
    """Uniform in ±1/√fan_in, weights and biases alike: what ``torch.nn.Linear`` does."""
    shape = node.block.weights()["weight"]
    fan_in = math.prod(extent for extent in shape[2 if len(shape) == 3 and not _convolves(node) else 1 :]
                       if isinstance(extent, int))
    weight.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)


def _convolves(node: Module) -> bool:
    return isinstance(node.block, Convolution)


def _adapters_end(path: str) -> bool:
    parts = path.split(".")
    return len(parts) > 1 and parts[-1] == "up" and parts[-2].endswith("_adapter")


SCHEMES: dict[str, Callable[..., None]] = {
    "xavier": xavier,
    "released": released,
    "partialformer": released,
    "edgeformer": released,
    "anthe": anthe,
    "torch": torch_default,
}
