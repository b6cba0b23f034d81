"""Initialisation schemes by name; each draws every weight once, in the order of the modules."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from scalesearch.blocks.leaves import Embedding, LayerNorm, PositionTable
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
    generator = torch.Generator(device=next(model.parameters()).device).manual_seed(seed)
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
    """Tables are N(0, 1/d) with a zero row for padding, norms the identity; the rest is the scheme's."""
    if isinstance(node.block, Embedding | PositionTable):
        weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
        if isinstance(node.block, Embedding):
            weight[0] = 0
    elif isinstance(node.block, LayerNorm):
        weight.fill_(1.0 if name == "weight" else 0.0)
    else:
        matrix(node, path.rsplit(".", 1)[-1], name, weight, generator)


def xavier(node: Module, part: str, name: str, weight: Tensor, generator: torch.Generator) -> None:
    """Xavier-uniform matrices, with gain 1/√2 for queries, keys and values (as if the three were one); zero biases."""
    if name == "bias":
        weight.zero_()
    elif part == "output":
        # An untied output matrix is drawn as a tied one would be: logits start small.
        weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
    else:
        gain = 2**-0.5 if part in ATTENTION_INPUTS else 1.0
        torch.nn.init.xavier_uniform_(weight, gain, generator=generator)


def released(node: Module, part: str, name: str, weight: Tensor, generator: torch.Generator) -> None:
    """As in the code released with EdgeFormer and PartialFormer (both on one toolkit).

    Queries, keys, values Xavier with gain 1/√2; attention output Xavier with zero bias; FFNs by torch's default.
    """
    if part in (*ATTENTION_INPUTS, "out", "output") and name == "weight":
        xavier(node, part, name, weight, generator)
    elif part in ("out", "output"):
        weight.zero_()
    else:
        torch_default(node, part, name, weight, generator)


def torch_default(node: Module, part: str, name: str, weight: Tensor, generator: torch.Generator) -> None:
    """Uniform in ±1/√fan_in, weights and biases alike: what ``torch.nn.Linear`` does."""
    shape = node.block.weights()["weight"]
    fan_in = math.prod(extent for extent in shape[1:] if isinstance(extent, int))
    weight.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)


SCHEMES: dict[str, Callable[..., None]] = {"xavier": xavier, "released": released, "torch": torch_default}
