"""Normalization of the features at each position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import Block, LoopNest, Shape, Size, block

if TYPE_CHECKING:
    from torch import Tensor


@block
class LayerNorm(Block):
    """Layer normalization over ``d`` features, with gain and bias (Ba et al. 2016)."""

    d: Size
    over: Shape
    eps: float = 1e-5

    weight_names: ClassVar[tuple[str, ...]] = ("weight", "bias")

    def weights(self) -> Mapping[str, Shape]:
        return dict.fromkeys(self.weight_names, (self.d,))

    def initialization(self, name: str) -> str:
        return "one" if name == "weight" else "zero"

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, self.d), "norm"),
                LoopNest((*self.over, self.d + 2), "activation")]  # 2: mean and standard deviation

    def forward(self, module: Any, x: Tensor) -> Tensor:
        from torch.nn.functional import layer_norm

        weights = {name: getattr(module, name) for name in self.weight_names}
        return layer_norm(x, (self.d,), **weights, eps=self.eps)


@block
class LayerNormWithoutBias(LayerNorm):
    """Layer normalization with a gain only, as in MPT."""

    weight_names: ClassVar[tuple[str, ...]] = ("weight",)


@block
class LayerNormWithoutWeights(LayerNorm):
    """Layer normalization without gain and bias, as in OLMo."""

    weight_names: ClassVar[tuple[str, ...]] = ()


@block
class RMSNorm(Block):
    """RMS norm: division by the root mean square, with a gain (Zhang & Sennrich 2019).

    PyTorch has no fused CPU kernel for it: it stores ``d`` more numbers than a layer norm and is
    slower.
    """

    d: Size
    over: Shape
    eps: float = 1e-5

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.d,)}

    def initialization(self, name: str) -> str:
        return "one"

    def loop_nests(self) -> Sequence[LoopNest]:
        # normalized, too
        return [LoopNest((*self.over, self.d), "norm"),
                LoopNest((*self.over, 2 * self.d + 1), "activation")]

    def forward(self, module: Any, x: Tensor) -> Tensor:
        from torch.nn.functional import rms_norm

        return rms_norm(x, (self.d,), module.weight, self.eps)


NORM_CLASSES: dict[str, type[LayerNorm] | type[RMSNorm]] = {
    "layer": LayerNorm, "layer-no-bias": LayerNormWithoutBias,
    "layer-no-weights": LayerNormWithoutWeights, "rms": RMSNorm}


def norm_type_field() -> Any:
    """Define the field for the type of a block's norms, a key of ``NORM_CLASSES``."""
    return field(default="layer", metadata={"plain": "layer"}, kw_only=True)
