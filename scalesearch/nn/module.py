"""``nn.Module`` of a block, whose weights may be another module's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from scalesearch.blocks.core import Block
from scalesearch.blocks.elementwise import lowered


@dataclass
class Dropout:
    """Dropout rates while training: on sub-layer outputs and embeddings, attention weights, FFN activations."""

    residual: float = 0.0
    attention: float = 0.0
    activation: float = 0.0


class Module(nn.Module):
    """One block, run. ``rates`` is shared by all modules of a model; ``tied`` names weights that live elsewhere."""

    def __init__(self, block: Block, rates: Dropout) -> None:
        super().__init__()
        self.block = block
        self.rates = rates
        self.kernel = "products"  # how fused attention runs
        self.folds: dict[str, Any] | None = None  # what of weights alone was computed, while they stay as they are
        # A plain dict, so that a tied weight is registered, saved and counted only where it is owned.
        self.tied: dict[str, Module] = {}

    def forward(self, *args: Any) -> Any:
        return self.block.forward(self, *args)

    def __getattr__(self, name: str) -> Any:
        tied = self.__dict__.get("tied")
        if tied and name in tied:
            return getattr(tied[name], name)
        return super().__getattr__(name)

    def tie(self, name: str, owner: Module) -> None:
        """Make this module's weight ``name`` that of ``owner``, or of the owner's owner."""
        while name in owner.tied:
            owner = owner.tied[name]
        del self._parameters[name]
        self.tied[name] = owner

    def constant(self, name: str, compute: Callable[[], Any]) -> Any:
        """``compute()`` of weights alone: each time, or once while the model is folded.

        A folded matrix is in the type that products run in.
        """
        if self.folds is None:
            return compute()
        if name not in self.folds:
            made = compute()
            self.folds[name] = lowered(made) if isinstance(made, Tensor) else made
        return self.folds[name]

    def ready(self, name: str) -> Tensor:
        """The weight ``name`` as products read it; autocast alone would convert it for each product of a search."""
        weight: Tensor = getattr(self, name)
        return weight if self.folds is None else self.constant(name, lambda: weight)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every weight that the block names, its own and the tied."""
        for name in self.block.weights():
            yield name, getattr(self, name)

    def extra_repr(self) -> str:
        shapes = [f"{name}{list(weight.shape)}{' (tied)' * (name in self.tied)}" for name, weight in self.weights()]
        return f"{type(self.block).__name__}" + (f", {', '.join(shapes)}" if shapes else "")
