"""Initialization schemes.

A scheme initializes every weight once, in the order of the modules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scalesearch.blocks.core import PAD, Block, join_path
from scalesearch.blocks.maps.chain_cores import ChainCores
from scalesearch.errors import UserError
from scalesearch.nn.module import Module

INITIALIZATIONS = ("scheme", "heads", "table", "tokens", "cores", "table cores", "one", "zero")
Initializer = Callable[[int, Tensor, torch.Generator], None]  # number of inputs, weight


def initialize(model: Module, scheme: str, seed: int) -> None:
    """Initialize every weight of ``model`` according to ``Block.initialization``.

    Args:
        model: the model.
        scheme: a key of ``INIT_SCHEMES``.
        seed: seed of the random numbers.

    Raises:
        UserError: the scheme does not exist, or a block names an unknown initialization.
    """
    if scheme not in INIT_SCHEMES:
        raise UserError(f"init: {scheme}: unknown scheme; use {', '.join(INIT_SCHEMES)}",
                        code="unknown-scheme")
    initializers = INIT_SCHEMES[scheme]
    roles: dict[str, str] = {}  # by path; a composite comes before its parts
    # a block may have no weights
    device = next((weight.device for weight in model.parameters()), "cpu")
    generator = torch.Generator(device=device).manual_seed(seed)
    with torch.no_grad():
        for path, node in model.named_modules():
            if isinstance(node, Module):
                roles |= {join_path(path, part_name): role
                          for part_name, role in node.block.part_roles().items()}
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
                    elif initialization not in ("scheme", "heads"):
                        raise UserError(
                            f"{type(node.block).__name__}: the weight `{name}` has the unknown "
                            f"initialization `{initialization}`; use {', '.join(INITIALIZATIONS)}",
                            code="unknown-initialization")
                    else:
                        role = roles.get(path, "")
                        keys = (f"{role}.bias", "bias") if name == "bias" else (role,)
                        draw = next((initializers[key] for key in keys if key in initializers),
                                    initializers["default"])
                        for part in weight if initialization == "heads" else (weight,):
                            draw(fan_in(node.block, name), part, generator)


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
        variance = 1 / rows if path.partition(".")[0] == "output" else 2 / (rows + columns)
    return float((variance / cores.bond ** (n - 1)) ** (1 / (2 * n))), float(variance**0.5)


def xavier_uniform(n_inputs: int, weight: Tensor, generator: torch.Generator,
                   gain: float = 1.0) -> None:
    """Initialize a matrix by Xavier-uniform."""
    torch.nn.init.xavier_uniform_(weight, gain, generator=generator)


def orthogonal(n_inputs: int, weight: Tensor, generator: torch.Generator) -> None:
    """Initialize an orthogonal matrix."""
    torch.nn.init.orthogonal_(weight, generator=generator)


def tied_readout(n_inputs: int, weight: Tensor, generator: torch.Generator) -> None:
    """Initialize an untied output matrix like a tied one, so that logits are small."""
    weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)


def zeros(n_inputs: int, weight: Tensor, generator: torch.Generator) -> None:
    """Set a weight to zero."""
    weight.zero_()


def torch_default(n_inputs: int, weight: Tensor, generator: torch.Generator) -> None:
    """Initialize weights and biases uniformly in ±1/√n_inputs, as ``torch.nn.Linear``."""
    bound = n_inputs**-0.5
    weight.uniform_(-bound, bound, generator=generator)


def fan_in(block: Block, name: str) -> int:
    """Return the number of inputs of each output of the linear map that has the weight ``name``.

    If a block has several matrices, and is not a product of them, each is a map of its own.
    """
    shapes = block.weights()
    if "weight" in shapes:
        name = "weight"
    elif hasattr(block, "d_in"):  # a product of several matrices
        return int(block.d_in)
    elif len(shapes[name]) == 1:  # the bias of the first matrix
        name = next((other for other, shape in shapes.items() if len(shape) > 1), name)
    inner = shapes[name][2 if block.initialization(name) == "heads" else 1 :]
    return math.prod(extent for extent in inner if isinstance(extent, int))


# The gain 1/√2 of queries, keys and values is that of Xavier for their concatenated matrix.
joined_xavier = partial(xavier_uniform, gain=2**-0.5)
# As the released code of EdgeFormer and PartialFormer.
RELEASED_SCHEME: Mapping[str, Initializer] = {
    "attention_in": joined_xavier, "head_gate": joined_xavier, "attention_out": xavier_uniform,
    "attention_out.bias": zeros, "readout": tied_readout, "readout.bias": zeros,
    "default": torch_default}
# Initializers of matrices and biases by role (``Block.part_roles``), ``ROLE.bias`` for biases;
# ``bias`` and ``default`` for all others. With a zero second matrix of an adapter, layers are
# initially equal to the shared layer (Hu et al. 2022).
INIT_SCHEMES: dict[str, Mapping[str, Initializer]] = {
    "xavier": {"attention_in": joined_xavier, "adapter_out": zeros, "readout": tied_readout,
               "bias": zeros, "default": xavier_uniform},
    "released": RELEASED_SCHEME, "partialformer": RELEASED_SCHEME, "edgeformer": RELEASED_SCHEME,
    "anthe": {"soft_role": orthogonal, "bias": zeros, "default": xavier_uniform},
    "torch": {"default": torch_default}}
