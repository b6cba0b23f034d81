"""Build PyTorch modules from blocks."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from scalesearch.blocks.core import VOCAB, Block, Repeat, Use
from scalesearch.blocks.weight_sharing import CrossStackTie
from scalesearch.nn.init import initialize
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.nn.module import DropoutRates, Module

Built = TypeVar("Built", bound=Module)


def build_model(block: Block, *, vocab: int, init: str = "xavier", seed: int = 1,
                dropout: DropoutRates | None = None, device: str | torch.device = "cpu",
                dtype: torch.dtype = torch.float32) -> Seq2SeqModel:
    """Build the model of a block.

    Args:
        block: block of a whole model.
        vocab: size of the vocabulary.
        init: a key of :data:`~scalesearch.nn.init.INIT_SCHEMES`.
        seed: seed of the initialization.
        dropout: dropout rates; by default 0.
        device: device of the weights; weights on ``meta`` are not initialized.
        dtype: type of the weights.
    """
    return _initialize_module(Seq2SeqModel(block.bind_vocabulary(vocab), dropout or DropoutRates()),
                              vocab, init, seed, device, dtype)


def build_module(block: Block, *, vocab: int = 8, device: str = "cpu",
                 dtype: torch.dtype = torch.float32) -> Module:
    """Build a module of one block with default initialization, for tests."""
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

    Raises:
        ValueError: the sizes of a block are not valid.
    """
    error = node.block.validate()
    if error is not None:
        raise ValueError(f"{type(node.block).__name__}.{error[0]}: {error[1]}")
    for name, shape in node.block.weights().items():
        size = [vocab if extent == VOCAB else extent for extent in shape]
        node.register_parameter(name, nn.Parameter(torch.empty(size, device="meta")))
    for name, part in node.block.parts().items():
        inner = part.block if isinstance(part, Use) else part
        if isinstance(inner, Repeat):
            layers = (inner.layer_at(index).bind_vocabulary(vocab) for index in range(inner.depth))
            node.add_module(name,
                            nn.ModuleList(_fill(Module(layer, node.dropout_rates), vocab)
                                          for layer in layers))
        else:
            node.add_module(name,
                            _fill(Module(inner.bind_vocabulary(vocab), node.dropout_rates), vocab))
    return node


def _tie(node: Module, root: Module) -> None:
    """Tie the weights of all parts of ``node`` that their blocks tie."""
    for name, part in node.block.parts().items():
        inner = part.block if isinstance(part, Use) else part
        child = node.get_submodule(name)
        if isinstance(inner, Repeat):
            for tie in inner.ties:
                is_cross_stack = isinstance(tie.schedule, CrossStackTie)
                source = root.get_submodule(tie.schedule.path) if is_cross_stack else child
                source_part = tie.schedule.part if is_cross_stack else tie.part
                owners = tie.schedule.layers if is_cross_stack else tie.schedule.owners(inner.depth)
                for index, owner in enumerate(owners):
                    if is_cross_stack or owner != index:
                        _tie_module(child[index].get_submodule(tie.part),
                                    source[owner].get_submodule(source_part), tie.excluded)
            for layer in child:
                _tie(layer, root)
            continue
        if isinstance(part, Use) and part.tied is not None:
            _tie_module(child, root.get_submodule(part.tied), part.untied)
        _tie(child, root)


def _tie_module(child: Module, owner: Module, excluded: tuple[str, ...] = ()) -> None:
    """Tie the weights of ``child`` to those of ``owner``, except ``excluded``.

    The weights of the parts are included.
    """
    for path, leaf in child.named_modules():
        if set(excluded).isdisjoint(path.split(".")):
            for name in list(leaf._parameters):
                if name not in excluded:
                    leaf.tie(name, owner.get_submodule(path))
