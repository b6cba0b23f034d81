"""Two maps of one input side by side, and a third of their sum: the branches of the Evolved Transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import Axes, Block, LoopNest, Size, Use, block, discarded_activations
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.leaves import StateCache
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.mixers.convolutions import ShortConvolution
from scalesearch.blocks.norms import NORM_CLASSES, norm_type_field
from scalesearch.blocks.options import option_field
from scalesearch.blocks.sizes import decide, maximum, require_single_value
from scalesearch.blocks.sublayers.base import register_sublayer

if TYPE_CHECKING:
    from torch import Tensor

BRANCH_MAPS = ("dense", "convolution", "separable")
BRANCH_ACTIVATIONS = {"none": None, "relu": "relu", "gelu": "gelu", "swish": "silu"}
SIDES = ("left", "right")


@block
class NeighborWindows(Block):
    """Each position's features beside those of its neighbors: (batch, positions + kernel - 1, d) to (…, kernel · d).

    With a linear map behind it, it is a full convolution.
    """

    d: Size
    kernel: Size
    over: Axes

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, self.kernel, self.d), "activation")]

    @property
    def copies_input(self) -> Any:
        return True

    @property
    def receptive_past(self) -> int:
        """The number of other positions that it sees, at most all of them on one side."""
        return self.kernel - 1

    def forward(self, module: Any, seen: Tensor) -> Tensor:
        import torch

        positions = seen.shape[1] - self.kernel + 1
        return torch.cat([seen[:, tap : tap + positions] for tap in range(self.kernel)], -1)


@register_sublayer("branches")
@block
class EvolvedBranches(Mixer):
    """S(norm(L x + R x)): L and R of widths of their own, S a separable convolution (So et al.

    2019, figure 3).

    What is narrower is filled with zeros. ``dense`` maps see a position alone, a ``convolution``
    all features of ``kernel`` positions, a ``separable`` one each channel apart, and then a matrix:
    in an encoder as many positions after as before, in a decoder none after.
    """

    left: str = option_field("dense", type="word", choices=BRANCH_MAPS,
                             doc="the map of the left branch")
    left_kernel: Size = option_field("3", doc="positions that it sees, unless it is dense")
    left_multiple: float = option_field("4", type="number", minimum=0, maximum=64,
                                        doc="features that it makes, of width")
    left_activation: str = option_field("relu", type="word", choices=tuple(BRANCH_ACTIVATIONS),
                                        doc="what they go through")
    right: str = option_field("convolution", type="word", choices=BRANCH_MAPS,
                              doc="the map of the right branch")
    right_kernel: Size = option_field("3", doc="positions that it sees, unless it is dense")
    right_multiple: float = option_field("0.5", type="number", minimum=0, maximum=64,
                                         doc="the same of the right branch")
    right_activation: str = option_field("relu", type="word", choices=tuple(BRANCH_ACTIVATIONS),
                                         doc="what they go through")
    kernel: Size = option_field("9",
                                doc="positions that the separable convolution behind them sees")
    multiple: float = option_field("0.5", type="number", minimum=0, maximum=1,
                                   doc="features that it makes, of width; then zeros")
    norm_kind: str = norm_type_field()

    output_projections: ClassVar[tuple[str, ...]] = ("out",)

    def __post_init__(self) -> None:
        for side in SIDES:  # one network has one identity
            if getattr(self, side) == "dense":
                object.__setattr__(self, f"{side}_kernel", 1)

    def validate(self) -> tuple[str, str] | None:
        for key in ("left_multiple", "right_multiple", "multiple"):
            if decide(self._scaled_width(key) < 1):
                return key, f"{getattr(self, key)} times {self.d} features are none"
        return None

    def _scaled_width(self, key: str) -> Size:
        """So many times ``d``, cut to a whole number; sizes may be arrays, and multiples have three decimals."""
        times = Fraction(require_single_value(getattr(self, key))).limit_denominator(1000)
        return self.d * times.numerator // times.denominator

    @property
    def sum_features(self) -> Size:
        """The features of the sum."""
        widest: Size = maximum(self._scaled_width("left_multiple"),
                               self._scaled_width("right_multiple"))
        return widest

    @property
    def output_features(self) -> Size:
        """The features of the result, before zeros."""
        return self._scaled_width("multiple")

    @property
    def receptive_field(self) -> Size:
        """The positions of the input that an output of the branches depends on."""
        most: Size = maximum(self.left_kernel, self.right_kernel)
        return most

    def _branch_parts(self, side: str) -> Mapping[str, Block]:
        kind = getattr(self, side)
        kernel = getattr(self, f"{side}_kernel")
        units = self._scaled_width(f"{side}_multiple")
        if kind == "convolution":
            return {f"{side}_rows": NeighborWindows(self.d, kernel, self.over),
                    side: self.linear_factory(kernel * self.d, units, self.over)}
        rows = {f"{side}_rows": ShortConvolution(self.d, kernel, self.d, self.over, "free")}
        return (rows if kind == "separable"
                else {}) | {side: self.linear_factory(self.d, units, self.over)}

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {**self._branch_parts("left"),
                                         **self._branch_parts("right")}
        parts["norm"] = NORM_CLASSES[self.norm_kind](self.sum_features, self.over)
        parts["rows"] = ShortConvolution(self.sum_features, self.kernel, self.sum_features,
                                         self.over, "free")
        parts["out"] = self.linear_factory(self.sum_features, self.output_features, self.over)
        kept = (self.receptive_field - 1) * self.d + (self.kernel - 1) * self.sum_features
        return parts | ({"store": StateCache(kept)} if self.decoder else {})

    @property
    def copies_input(self) -> Any:
        left, right = (next(iter(self._branch_parts(side).values())).copies_input for side in SIDES)
        return left & right

    def loop_nests(self) -> Sequence[LoopNest]:
        """Kept besides parts' outputs: zeros behind the result.

        The norm's input, the sum, is in its output's place.
        """
        extra = self.d - self.output_features
        copied = discarded_activations(self.d, self.over, self)
        parts: Mapping[str, Any] = self.parts()
        for side in SIDES:
            extra = extra - self._scaled_width(f"{side}_multiple") * (
                getattr(self, f"{side}_activation") == "none")
            if f"{side}_rows" in parts:
                width = self.d * (getattr(self, f"{side}_kernel")
                                  if getattr(self, side) == "convolution" else 1)
                copied += discarded_activations(width, self.over, parts[side])
        return [LoopNest((*self.over, extra), "activation"), *copied,
                *discarded_activations(self.sum_features, self.over, parts["out"])]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        from torch.nn.functional import pad

        near = self._pad_context(module, x, token_mask, self.receptive_field, cache)
        left, right = (pad(y, (0, self.sum_features - y.shape[-1]))
                       for y in (self._branch(module, side, x, near) for side in SIDES))
        y = module.norm(left + right)
        y = module.out(
            module.rows(self._pad_context(module.norm, y, token_mask, self.kernel, cache)))
        return pad(y, (0, self.d - self.output_features))

    def _branch(self, m: Any, side: str, x: Tensor, near: Tensor) -> Tensor:
        """One branch; ``near``: the positions, with those around them that the wider of the two kernels reaches."""
        from torch.nn import functional

        if getattr(self, side) != "dense":
            kernel: int = getattr(self, f"{side}_kernel")
            first = self._past_positions(self.receptive_field) - self._past_positions(kernel)
            x = getattr(m, f"{side}_rows")(near[:, first : first + x.shape[1] + kernel - 1])
        y = getattr(m, side)(x)
        activation = BRANCH_ACTIVATIONS[getattr(self, f"{side}_activation")]
        return y if activation is None else dropout(
            getattr(functional, activation)(y), m.dropout_rates.activation, m.training)

    def _past_positions(self, kernel: Size) -> Size:
        """How many positions before its own an output sees."""
        return kernel - 1 if self.decoder else kernel // 2

    def _pad_context(self, key: Tensor, y: Tensor, present: Tensor | None, kernel: int, cache: Any) -> Tensor:
        """``y`` with zeros for padding, and ``kernel`` - 1 rows more: zeros, or those of the cache for ``key``."""
        from torch.nn.functional import pad

        y = y if present is None else y * present[..., None]
        before = self._past_positions(kernel)
        return (pad(y, (0, 0, before, kernel - 1 - before)) if cache is None
                else cache.append_window(key, y, before))
