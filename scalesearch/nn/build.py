"""Modules from blocks: the walk that costs them, with tensors in place of counts."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from scalesearch.blocks.core import VOCAB, Block, Repeat, Tie, Use
from scalesearch.blocks.weight_sharing import CrossStackTie
from scalesearch.nn.init import initialize
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.nn.module import DropoutRates, Module

Built = TypeVar("Built", bound=Module)


def build_model(block: Block, *, vocab: int, init: str = "xavier", seed: int = 1,
                dropout: DropoutRates | None = None, device: str | torch.device = "cpu",
                dtype: torch.dtype = torch.float32) -> Seq2SeqModel:
    """The model that ``block`` describes, with ``vocab`` tokens, initialized by the scheme ``init`` from ``seed``."""
    return _initialize_module(Seq2SeqModel(block.bind_vocabulary(vocab), dropout or DropoutRates()),
                              vocab, init, seed, device, dtype)


def build_module(block: Block, *, vocab: int = 8, device: str = "cpu",
                 dtype: torch.dtype = torch.float32) -> Module:
    """One block as a module of its own, weights drawn from the default scheme: for tests and inspection."""
    return _initialize_module(Module(block.bind_vocabulary(vocab), DropoutRates()), vocab, "xavier",
                              1, device, dtype)


def _initialize_module(root: Built, vocab: int, init: str, seed: int, device: str | torch.device,
                       dtype: torch.dtype) -> Built:
    _fill(root, vocab)
    _tie(root, root)
    root.to_empty(device=device).to(dtype)
    if torch.device(device).type != "meta":
        initialize(root, init, seed)
    return root


def _fill(node: Module, vocab: int) -> Module:
    """Add weights (on the meta device) and parts to ``node``.

    Raises ValueError at sizes that misfit.
    """
    if (wrong := node.block.validate()) is not None:
        raise ValueError(f"{type(node.block).__name__}.{wrong[0]}: {wrong[1]}")
    for name, shape in node.block.weights().items():
        size = [vocab if extent == VOCAB else extent for extent in shape]
        node.register_parameter(name, nn.Parameter(torch.empty(size, device="meta")))
    for name, part in node.block.parts().items():
        inner = part.block if isinstance(part, Use) else part
        if isinstance(inner, Repeat):
            layers = (inner.layer_at(number).bind_vocabulary(vocab)
                      for number in range(inner.depth))
            node.add_module(name,
                            nn.ModuleList(_fill(Module(layer, node.dropout_rates), vocab)
                                          for layer in layers))
        else:
            node.add_module(name,
                            _fill(Module(inner.bind_vocabulary(vocab), node.dropout_rates), vocab))
    return node


def _tie(node: Module, root: Module) -> None:
    """Tie what the bill beneath ``node`` ties."""
    for name, part in node.block.parts().items():
        inner = part.block if isinstance(part, Use) else part
        child = node.get_submodule(name)
        if isinstance(inner, Repeat):
            for tie in inner.ties:
                _tie_layers(child, inner.depth, tie, root)
            for layer in child:
                _tie(layer, root)
            continue
        if isinstance(part, Use) and part.tied is not None:
            _tie_module(child, root.get_submodule(part.tied))
        _tie(child, root)


def _tie_layers(layers: nn.Module, depth: int, tie: Tie, root: Module) -> None:
    """Tie one part of the layers to its owners, here or in another stack."""
    borrowed = isinstance(tie.schedule, CrossStackTie)
    source = root.get_submodule(tie.schedule.path) if borrowed else layers
    owners = tie.schedule.layers if borrowed else tie.schedule.owners(depth)
    for index, owner in enumerate(owners):
        if borrowed or owner != index:
            target = source[owner].get_submodule(tie.schedule.part if borrowed else tie.part)
            _tie_module(layers[index].get_submodule(tie.part), target, tie.excluded)


def _tie_module(child: Module, owner: Module, own: tuple[str, ...] = ()) -> None:
    """Tie the weights beneath ``child`` to those beneath ``owner``, except names in ``own``."""
    for path, leaf in child.named_modules():
        if set(own).isdisjoint(path.split(".")):
            for name in list(leaf._parameters):
                if name not in own:
                    leaf.tie(name, owner.get_submodule(path))
