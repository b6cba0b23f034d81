"""Short convolutions instead of attention: lightweight, dynamic (Wu et al.

2019), separable (Kaiser et al. 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import Axes, Block, LoopNest, Shape, Size, Use, block, discarded_activations
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.leaves import Linear, StateCache
from scalesearch.blocks.mixers.base import Mixer, register_mixer
from scalesearch.blocks.options import option_field
from scalesearch.blocks.sizes import decide

if TYPE_CHECKING:
    from torch import Tensor


@block
class ShortConvolution(Block):
    """Convolution channel by channel: ``heads`` sets of ``kernel`` taps, each for ``d / heads`` channels in a row.

    ``kernel_type``: ``free``; ``softmax``, normalized; ``predicted``, which come in for each
    position and are normalized too. A tap outside the sentence multiplies zero and still counts in
    the softmax, so that a cache changes nothing.
    """

    d: Size
    kernel: Size
    heads: Size
    over: Axes
    kernel_type: str

    def weights(self) -> Mapping[str, Shape]:
        return {} if self.kernel_type == "predicted" else {"weight": (self.heads, self.kernel)}

    def initialization(self, name: str) -> str:
        return "table"

    def loop_nests(self) -> Sequence[LoopNest]:
        windows: Shape = (*self.over, self.d, self.kernel)
        kept = [LoopNest(windows, "activation"), LoopNest((*self.over, self.d), "activation")]
        normalized = [LoopNest((self.heads, self.kernel),
                               "activation")] if self.kernel_type == "softmax" else []
        return [LoopNest(windows), *kept, *normalized]

    @property
    def copies_input(self) -> Any:
        return True  # as windows

    @property
    def receptive_past(self) -> int:
        """The number of other positions that it sees, at most all of them on one side."""
        return self.kernel - 1

    def forward(self, module: Any, seen: Tensor, predicted: Tensor | None = None) -> Tensor:
        """(batch, positions + kernel - 1, d), and (batch, positions, heads · kernel) predicted, to (batch, …, d)."""
        windows = seen.unfold(1, self.kernel, 1).unflatten(2, (self.heads, -1))
        if predicted is not None:
            taps = dropout(predicted.unflatten(2, (self.heads, -1)).softmax(-1),
                           module.dropout_rates.attention, module.training)
            return (windows @ taps[..., None]).flatten(2)
        taps = module.weight
        if self.kernel_type == "softmax":
            taps = dropout(module.cached_constant("taps", lambda: module.weight.softmax(1)),
                           module.dropout_rates.attention, module.training)
        # Heads as the batch of one product: with one for each position it took 1.2 (bf16) to 1.8
        # times (fp32) as long.
        by_head = windows.permute(2, 0, 1, 3, 4)
        return (by_head.flatten(1, 3) @ taps[..., None]).view(
            by_head.shape[:-1]).permute(1, 2, 0, 3).flatten(2)


@block
class ConvolutionMixer(Mixer):
    """A short convolution between matrices, which mix what its channels keep apart; the base of its kinds.

    In an encoder an output sees as many positions after its own as before it, in a decoder none.
    """

    kernel: Size = option_field("7", doc="positions that an output sees")
    glu: bool = option_field("no", type="flag",
                             doc="a gated linear unit before the taps (Dauphin et al. 2017)")

    output_projections: ClassVar[tuple[str, ...]] = ("out",)
    kernel_type: ClassVar[str]
    # whether there is a matrix before the taps without the gate as well
    always_projects: ClassVar[bool] = True

    @property
    def groups(self) -> Size:
        """The number of sets of taps."""
        raise NotImplementedError

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {}
        if self.glu or self.always_projects:
            parts["inward"] = self.linear_factory(
                self.d, self.d * 2 if self.glu else self.d, self.over)
        if self.kernel_type == "predicted":
            parts["taps"] = Linear(self.d, self.groups * self.kernel, self.over, bias=False)
        parts["convolution"] = ShortConvolution(
            self.d, self.kernel, self.groups, self.over, self.kernel_type)
        parts["out"] = self.linear_factory(self.d, self.d, self.over)
        return parts | ({"store": StateCache((self.kernel - 1) * self.d)} if self.decoder else {})

    @property
    def copies_input(self) -> Any:
        parts: Mapping[str, Any] = self.parts()
        return parts.get("inward", parts["convolution"]).copies_input

    def loop_nests(self) -> Sequence[LoopNest]:
        """What its windows are copies of is not kept, unless taps are predicted from it."""
        kept = discarded_activations(self.d, self.over, self)
        predicted = self.kernel_type == "predicted"
        between = self.glu or not self.always_projects
        extra = 1 if predicted and between else -1 if not predicted and not between else 0
        return [*kept, LoopNest((*self.over, extra * self.d), "activation")] if extra else kept

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        from torch.nn.functional import glu, pad

        y = module.inward(x) if self.glu or self.always_projects else x
        y = glu(y) if self.glu else y
        # Right before the taps: what a matrix makes of zeros is its bias.
        y = y if token_mask is None else y * token_mask[..., None]
        before = self.kernel - 1 if self.decoder else self.kernel // 2
        seen = (pad(y, (0, 0, before, self.kernel - 1 - before)) if cache is None
                else cache.append_window(module, y, before))
        return module.out(
            module.convolution(seen,
                               *([module.taps(y)] if self.kernel_type == "predicted" else [])))


@block
class MultiHeadConvolutionMixer(ConvolutionMixer):
    """A short convolution with a set of taps for each of ``heads`` groups of channels."""

    heads: Size = option_field("4", doc="sets of taps, each for as many channels")

    @property
    def groups(self) -> Size:
        return self.heads

    def validate(self) -> tuple[str, str] | None:
        return ("heads", f"{self.heads} do not divide {self.d} channels") if decide(
            self.d % self.heads != 0) else None


@register_mixer("lightweight")
@block
class LightweightConvolution(MultiHeadConvolutionMixer):
    """A lightweight convolution: taps add up to 1 (Wu et al. 2019, section 3)."""

    kernel_type: ClassVar[str] = "softmax"


@register_mixer("dynamic")
@block
class DynamicConvolution(MultiHeadConvolutionMixer):
    """A dynamic convolution: each position chooses its taps, which add up to 1 (Wu et al.

    2019, section 4).
    """

    kernel_type: ClassVar[str] = "predicted"


@register_mixer("separable")
@block
class SeparableConvolution(ConvolutionMixer):
    """A depthwise convolution, then a matrix (Kaiser et al. 2018)."""

    kernel_type: ClassVar[str] = "free"
    always_projects: ClassVar[bool] = False

    @property
    def groups(self) -> Size:
        return self.d
