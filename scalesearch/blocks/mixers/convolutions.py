"""Short convolutions instead of attention.

Lightweight and dynamic convolutions (Wu et al. 2019) and separable ones (Kaiser et al. 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import (
    Axes,
    Block,
    LoopNest,
    Shape,
    Size,
    Use,
    block,
    discarded_activations,
)
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.leaves import Linear, StateCache
from scalesearch.blocks.mixers.base import Mixer, register_mixer
from scalesearch.blocks.options import option_field
from scalesearch.blocks.sizes import decide

if TYPE_CHECKING:
    from torch import Tensor


@block
class ShortConvolution(Block):
    """Depthwise convolution; consecutive channels share taps.

    Taps outside the sentence multiply zeros and are included in the softmax, so that decoding with
    a cache gives the same result.

    Attributes:
        d: channels.
        kernel: number of taps.
        heads: sets of taps, each for ``d / heads`` consecutive channels.
        over: axes.
        kernel_type: ``free`` taps; ``softmax``, taps normalized by a softmax; ``predicted``, an
            input with taps for each position, normalized by a softmax.
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
        nests = [LoopNest(windows), LoopNest(windows, "activation"),
                 LoopNest((*self.over, self.d), "activation")]
        if self.kernel_type == "softmax":
            nests.append(LoopNest((self.heads, self.kernel), "activation_once"))
        return nests

    @property
    def copies_input(self) -> Any:
        return True  # the windows are copies

    @property
    def receptive_past(self) -> int:
        """Upper bound of the earlier positions that an output depends on."""
        return self.kernel - 1

    def forward(self, module: Any, padded: Tensor, predicted: Tensor | None = None) -> Tensor:
        """Run the convolution.

        Args:
            padded: (batch, positions + kernel - 1, d).
            predicted: predicted taps (batch, positions, heads · kernel), or None.

        Returns:
            (batch, positions, d).
        """
        # (batch, positions, heads, d / heads, kernel)
        windows = padded.unfold(1, self.kernel, 1).unflatten(2, (self.heads, -1))
        if predicted is not None:
            taps = dropout(predicted.unflatten(2, (self.heads, -1)).softmax(-1),
                           module.dropout_rates.attention, module.training)
            return (windows @ taps[..., None]).flatten(2)
        taps = module.weight
        if self.kernel_type == "softmax":
            taps = dropout(module.cached_constant("taps", lambda: module.weight.softmax(1)),
                           module.dropout_rates.attention, module.training)
        # One product with the heads as batch: one product per position took 1.2 (bf16) to 1.8 times
        # (fp32) as long.
        by_head = windows.permute(2, 0, 1, 3, 4)
        return (by_head.flatten(1, 3) @ taps[..., None]).view(
            by_head.shape[:-1]).permute(1, 2, 0, 3).flatten(2)


@block
class ConvolutionMixer(Mixer):
    """Base class of mixers with a short convolution between linear maps.

    In an encoder, an output depends on equally many positions before and after it; in a decoder, on
    earlier positions only.
    """

    kernel: Size = option_field("7", doc="positions that an output depends on")
    glu: bool = option_field("no", type="flag",
                             doc="gated linear unit before the taps (Dauphin et al. 2017)")

    output_projections: ClassVar[tuple[str, ...]] = ("out",)
    kernel_type: ClassVar[str]
    # whether there is a linear map before the taps even without the gated linear unit
    always_projects: ClassVar[bool] = True

    @property
    def groups(self) -> Size:
        """Number of sets of taps."""
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
        """Return the correction for the input of the taps.

        It is stored if taps are predicted from it; otherwise only the windows are stored.
        """
        nests = discarded_activations(self.d, self.over, self)
        is_predicted = self.kernel_type == "predicted"
        is_intermediate = self.glu or not self.always_projects
        if is_predicted and is_intermediate:
            nests.append(LoopNest((*self.over, self.d), "activation"))
        elif not is_predicted and not is_intermediate:
            nests.append(LoopNest((*self.over, -self.d), "activation"))
        return nests

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        from torch.nn.functional import glu, pad

        y = module.inward(x) if self.glu or self.always_projects else x
        y = glu(y) if self.glu else y
        # Padding is set to zero after the linear map, whose bias would make it nonzero.
        y = y if token_mask is None else y * token_mask[..., None]
        past = self.kernel - 1 if self.decoder else self.kernel // 2
        if cache is None:
            padded = pad(y, (0, 0, past, self.kernel - 1 - past))
        else:
            padded = cache.append_window(module, y, past)
        predicted = module.taps(y) if self.kernel_type == "predicted" else None
        return module.out(module.convolution(padded, predicted))


@block
class MultiHeadConvolutionMixer(ConvolutionMixer):
    """Base class of short convolutions with one set of taps per group of channels."""

    heads: Size = option_field("4", doc="sets of taps, each for the same number of channels")

    @property
    def groups(self) -> Size:
        return self.heads

    def validate(self) -> tuple[str, str] | None:
        if decide(self.d % self.heads != 0):
            return "heads", f"{self.d} channels are not a multiple of {self.heads}"
        return None


@register_mixer("lightweight")
@block
class LightweightConvolution(MultiHeadConvolutionMixer):
    """Lightweight convolution: the taps sum to 1 (Wu et al. 2019, section 3)."""

    kernel_type: ClassVar[str] = "softmax"


@register_mixer("dynamic")
@block
class DynamicConvolution(MultiHeadConvolutionMixer):
    """Dynamic convolution: taps are predicted per position (Wu et al. 2019, sec. 4)."""

    kernel_type: ClassVar[str] = "predicted"


@register_mixer("separable")
@block
class SeparableConvolution(ConvolutionMixer):
    """Depthwise convolution, then a linear map (Kaiser et al. 2018)."""

    kernel_type: ClassVar[str] = "free"
    always_projects: ClassVar[bool] = False

    @property
    def groups(self) -> Size:
        return self.d
