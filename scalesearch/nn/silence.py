"""Layers that pass on what they are given: the last matrices of a pre-norm layer's sub-layers are zero."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from scalesearch.nn.module import Module


def silence(layer: Module, free: Callable[[Module, str], bool]) -> bool:
    """Make ``layer`` the identity; returns whether it is now: post-norm layers cannot be.

    Args:
        free: whether a weight may be changed: it has no use outside of such layers.
    """
    if getattr(layer.block, "norm", None) != "pre":
        return False
    subs = [part for name, part in layer.named_children() if not name.endswith("_norm")]
    return all(_silent(part, free) for part in subs)


def _silent(part: nn.Module, free: Callable[[Module, str], bool]) -> bool:
    """Make what a sub-layer adds zero: whatever reads its features last, and the adapter beside that."""
    names = {name for name, _ in part.named_children()}
    last = [name for name in ("out", "down") if name in names] + [name for name in names if name == "out_adapter"]
    return bool(last) and all(_zero(getattr(part, name), free) for name in last)


def _zero(part: Module, free: Callable[[Module, str], bool]) -> bool:
    """Make a linear map zero by its last factor and its bias; the factors before it keep the gradient alive."""
    inner = part
    while hasattr(inner, "up"):
        inner = inner.up
    found = [name for name, _ in inner.weights()]
    factors = sorted(name for name in found if name != "bias")
    chosen = [(inner, name) for name in (*factors[-1:], *(name for name in found if name == "bias"))]
    if not factors or not all(free(node, name) for node, name in chosen):
        return False
    with torch.no_grad():
        for node, name in chosen:
            getattr(node, name).zero_()
    return True
