"""Other sub-layers, which a layer contains if its key ``sublayers:`` lists them.

They are mixers, which may also process each position separately. Branches and GLU are those of the
Evolved Transformer (So et al. 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import Axes, Block, LoopNest, Size, Use, block, discarded_activations
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.leaves import StateCache
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.mixers.convolutions import ShortConvolution
from scalesearch.blocks.norms import NORM_CLASSES, norm_type_field
from scalesearch.blocks.options import option_field, register
from scalesearch.blocks.sizes import decide, maximum, require_single_value

if TYPE_CHECKING:
    from torch import Tensor

SUBLAYERS: dict[str, type[Mixer]] = {}
# decorator @register_sublayer("name") of a mixer class
register_sublayer = partial(register, SUBLAYERS)

BRANCH_MAPS = ("dense", "convolution", "separable")
BRANCH_ACTIVATIONS = {"none": None, "relu": "relu", "gelu": "gelu", "swish": "silu"}
SIDES = ("left", "right")


@block
class NeighborWindows(Block):
    """Concatenation of the features of neighboring positions.

    (batch, positions + kernel - 1, d) to (batch, positions, kernel · d). Followed by a linear map,
    it is a convolution.
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
        """Upper bound of the earlier positions that an output depends on."""
        return self.kernel - 1

    def forward(self, module: Any, padded: Tensor) -> Tensor:
        import torch

        positions = padded.shape[1] - self.kernel + 1
        return torch.cat([padded[:, tap : tap + positions] for tap in range(self.kernel)], -1)


@register_sublayer("branches")
@block
class EvolvedBranches(Mixer):
    """S(norm(L x + R x)) with a separable convolution S (So et al. 2019, figure 3).

    The branches L and R can have different widths; narrower outputs are padded with zeros. Their
    maps are ``dense`` (one position), ``convolution`` (all features of ``kernel`` positions) or
    ``separable`` (a depthwise convolution and a linear map). In an encoder, a convolution reads
    equally many positions before and after; in a decoder, earlier positions only.
    """

    left: str = option_field("dense", type="word", choices=BRANCH_MAPS,
                             doc="map of the left branch")
    left_kernel: Size = option_field("3", doc="its kernel width, unless it is dense")
    left_multiple: float = option_field("4", type="number", minimum=0, maximum=64,
                                        doc="its output features, in multiples of width")
    left_activation: str = option_field("relu", type="word", choices=tuple(BRANCH_ACTIVATIONS),
                                        doc="its activation")
    right: str = option_field("convolution", type="word", choices=BRANCH_MAPS,
                              doc="map of the right branch")
    right_kernel: Size = option_field("3", doc="its kernel width, unless it is dense")
    right_multiple: float = option_field("0.5", type="number", minimum=0, maximum=64,
                                         doc="its output features, in multiples of width")
    right_activation: str = option_field("relu", type="word", choices=tuple(BRANCH_ACTIVATIONS),
                                         doc="its activation")
    kernel: Size = option_field("9",
                                doc="kernel width of the separable convolution after the branches")
    multiple: float = option_field(
        "0.5", type="number", minimum=0, maximum=1,
        doc="its output features, in multiples of width; the other features are zeros")
    norm_kind: str = norm_type_field()

    output_projections: ClassVar[tuple[str, ...]] = ("out",)

    def __post_init__(self) -> None:
        for side in SIDES:  # the kernel of a dense map has no effect: equal networks have equal ids
            if getattr(self, side) == "dense":
                object.__setattr__(self, f"{side}_kernel", 1)

    def validate(self) -> tuple[str, str] | None:
        for key in ("left_multiple", "right_multiple", "multiple"):
            if decide(self._scaled_width(key) < 1):
                return key, f"{getattr(self, key)} times {self.d} features is less than 1"
        return None

    def _scaled_width(self, key: str) -> Size:
        """Return the option ``key`` times ``d``, rounded down.

        Multiples have three decimals.
        """
        multiple = Fraction(require_single_value(getattr(self, key))).limit_denominator(1000)
        return self.d * multiple.numerator // multiple.denominator

    @cached_property
    def sum_features(self) -> Size:
        """Features of the sum."""
        widest: Size = maximum(self._scaled_width("left_multiple"),
                               self._scaled_width("right_multiple"))
        return widest

    @cached_property
    def output_features(self) -> Size:
        """Features of the output without the zeros."""
        return self._scaled_width("multiple")

    @cached_property
    def receptive_field(self) -> Size:
        """Number of input positions that an output of the branches depends on."""
        kernel: Size = maximum(self.left_kernel, self.right_kernel)
        return kernel

    def _branch_parts(self, side: str) -> Mapping[str, Block]:
        branch_map = getattr(self, side)
        kernel = getattr(self, f"{side}_kernel")
        units = self._scaled_width(f"{side}_multiple")
        if branch_map == "convolution":
            return {f"{side}_rows": NeighborWindows(self.d, kernel, self.over),
                    side: self.linear_factory(kernel * self.d, units, self.over)}
        parts: dict[str, Block] = {}
        if branch_map == "separable":
            parts[f"{side}_rows"] = ShortConvolution(self.d, kernel, self.d, self.over, "free")
        return parts | {side: self.linear_factory(self.d, units, self.over)}

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {**self._branch_parts("left"),
                                         **self._branch_parts("right")}
        parts["norm"] = NORM_CLASSES[self.norm_kind](self.sum_features, self.over)
        parts["rows"] = ShortConvolution(self.sum_features, self.kernel, self.sum_features,
                                         self.over, "free")
        parts["out"] = self.linear_factory(self.sum_features, self.output_features, self.over)
        cached = (self.receptive_field - 1) * self.d + (self.kernel - 1) * self.sum_features
        return parts | ({"store": StateCache(cached)} if self.decoder else {})

    @property
    def copies_input(self) -> Any:
        left, right = (next(iter(self._branch_parts(side).values())).copies_input for side in SIDES)
        return left & right

    def loop_nests(self) -> Sequence[LoopNest]:
        """Return the activations that are stored in addition to the outputs of the parts.

        The padded output is stored; the sum is the input of the norm and replaces the outputs of
        the branches.
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
        from torch.nn import functional
        from torch.nn.functional import pad

        # with the neighbors that the wider of the two kernels reads
        padded = self._pad_context(module, x, token_mask, self.receptive_field, cache)
        branches = []  # (batch, positions, features of the sum)
        for side in SIDES:
            y = x
            if getattr(self, side) != "dense":
                kernel: int = getattr(self, f"{side}_kernel")
                first = self._past_positions(self.receptive_field) - self._past_positions(kernel)
                y = getattr(module, f"{side}_rows")(
                    padded[:, first : first + x.shape[1] + kernel - 1])
            y = getattr(module, side)(y)
            activation = BRANCH_ACTIVATIONS[getattr(self, f"{side}_activation")]
            if activation is not None:
                y = dropout(getattr(functional, activation)(y), module.dropout_rates.activation,
                            module.training)
            branches.append(pad(y, (0, self.sum_features - y.shape[-1])))
        y = module.norm(branches[0] + branches[1])
        padded = self._pad_context(module.norm, y, token_mask, self.kernel, cache)
        y = module.out(module.rows(padded))
        return pad(y, (0, self.d - self.output_features))

    def _past_positions(self, kernel: Size) -> Size:
        """Return the number of earlier positions that a kernel reads."""
        return kernel - 1 if self.decoder else kernel // 2

    def _pad_context(self, key: Any, y: Tensor, present: Tensor | None, kernel: int,
                     cache: Any) -> Tensor:
        """Set padding to zero and add the neighbors that a kernel reads.

        Args:
            key: key of the cache.
            y: (batch, positions, features).
            present: token mask (batch, positions), or None.
            kernel: kernel width.
            cache: the cache, or None.

        Returns:
            (batch, positions + kernel - 1, features).
        """
        from torch.nn.functional import pad

        y = y if present is None else y * present[..., None]
        past = self._past_positions(kernel)
        if cache is None:
            return pad(y, (0, 0, past, kernel - 1 - past))
        return cache.append_window(key, y, past)


@register_sublayer("glu")
@block
class GatedLinearUnit(Mixer):
    """Gated linear unit (W x + b) ⊙ σ(V x + c) at each position (Dauphin et al. 2017)."""

    output_projections: ClassVar[tuple[str, ...]] = ("value",)

    def parts(self) -> Mapping[str, Block | Use]:
        linear = self.linear_factory(self.d, self.d, self.over)
        return {"value": linear, "gate": linear}

    @property
    def copies_input(self) -> Any:
        return self.linear_factory(self.d, self.d, self.over).copies_input

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, self.d), "activation"),
                *discarded_activations(self.d, self.over, self)]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        return module.value(x) * module.gate(x).sigmoid()
