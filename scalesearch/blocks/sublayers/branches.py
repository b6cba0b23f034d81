"""Two maps of one input side by side, and a third of their sum: the branches of the Evolved Transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

from scalesearch.blocks.core import Axes, Block, Size, Use, Work, block, not_kept
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.leaves import RowCache
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.mixers.convolutions import ShortConvolution
from scalesearch.blocks.norms import NORM_KINDS, norm_kind
from scalesearch.blocks.options import option
from scalesearch.blocks.sizes import fixed, maximum, truth
from scalesearch.blocks.sublayers.base import further

MAPS = ("dense", "convolution", "separable")
ACTIVATIONS = {"none": None, "relu": "relu", "gelu": "gelu", "swish": "silu"}
SIDES = ("left", "right")


@block
class Neighbours(Block):
    """Each position's features beside those of its neighbours: (batch, positions + kernel - 1, d) to (…, kernel · d).

    With a linear map behind it, it is a full convolution.
    """

    d: Size
    kernel: Size
    over: Axes

    def work(self) -> Sequence[Work]:
        return [Work((*self.over, self.kernel, self.d), "activation")]

    @property
    def copies(self) -> Any:
        return True

    @property
    def past(self) -> int:
        """The number of other positions that it sees, at most all of them on one side."""
        return self.kernel - 1

    def forward(self, m: Any, seen: Any) -> Any:
        import torch

        positions = seen.shape[1] - self.kernel + 1
        return torch.cat([seen[:, tap : tap + positions] for tap in range(self.kernel)], -1)


@further("branches")
@block
class TwoBranches(Mixer):
    """S(norm(L x + R x)): L and R of widths of their own, S a separable convolution (So et al. 2019, figure 3).

    What is narrower is filled with zeros. ``dense`` maps see a position alone, a ``convolution`` all features of
    ``kernel`` positions, a ``separable`` one each channel apart, and then a matrix: in an encoder as many positions
    after as before, in a decoder none after.
    """

    left: str = option("dense", kind="word", among=MAPS, doc="the map of the left branch")
    left_kernel: Size = option("3", doc="positions that it sees, unless it is dense")
    left_multiple: float = option("4", kind="number", low=0, high=64, doc="features that it makes, of width")
    left_activation: str = option("relu", kind="word", among=tuple(ACTIVATIONS), doc="what they go through")
    right: str = option("convolution", kind="word", among=MAPS, doc="the map of the right branch")
    right_kernel: Size = option("3", doc="positions that it sees, unless it is dense")
    right_multiple: float = option("0.5", kind="number", low=0, high=64, doc="the same of the right branch")
    right_activation: str = option("relu", kind="word", among=tuple(ACTIVATIONS), doc="what they go through")
    kernel: Size = option("9", doc="positions that the separable convolution behind them sees")
    multiple: float = option("0.5", kind="number", low=0, high=1, doc="features that it makes, of width; then zeros")
    norm_kind: str = norm_kind()

    ends: ClassVar[tuple[str, ...]] = ("out",)

    def __post_init__(self) -> None:
        for side in SIDES:  # one network has one identity
            if getattr(self, side) == "dense":
                object.__setattr__(self, f"{side}_kernel", 1)

    def misfit(self) -> tuple[str, str] | None:
        for key in ("left_multiple", "right_multiple", "multiple"):
            if truth(self._units(key) < 1):
                return key, f"{getattr(self, key)} times {self.d} features are none"
        return None

    def _units(self, key: str) -> Size:
        """So many times ``d``, cut to a whole number; sizes may be arrays, and multiples have three decimals."""
        times = Fraction(fixed(getattr(self, key))).limit_denominator(1000)
        return self.d * times.numerator // times.denominator

    @property
    def wide(self) -> Size:
        """The features of the sum."""
        widest: Size = maximum(self._units("left_multiple"), self._units("right_multiple"))
        return widest

    @property
    def units(self) -> Size:
        """The features of the result, before zeros."""
        return self._units("multiple")

    @property
    def seen(self) -> Size:
        """The positions of the input that an output of the branches depends on."""
        most: Size = maximum(self.left_kernel, self.right_kernel)
        return most

    def _side(self, side: str) -> Mapping[str, Block]:
        kind, kernel, units = getattr(self, side), getattr(self, f"{side}_kernel"), self._units(f"{side}_multiple")
        if kind == "convolution":
            return {f"{side}_rows": Neighbours(self.d, kernel, self.over),
                    side: self.site(kernel * self.d, units, self.over)}
        rows = {f"{side}_rows": ShortConvolution(self.d, kernel, self.d, self.over, "free")}
        return (rows if kind == "separable" else {}) | {side: self.site(self.d, units, self.over)}

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {**self._side("left"), **self._side("right")}
        parts["norm"] = NORM_KINDS[self.norm_kind](self.wide, self.over)
        parts["rows"] = ShortConvolution(self.wide, self.kernel, self.wide, self.over, "free")
        parts["out"] = self.site(self.wide, self.units, self.over)
        kept = (self.seen - 1) * self.d + (self.kernel - 1) * self.wide
        return parts | ({"store": RowCache(kept)} if self.decoder else {})

    @property
    def copies(self) -> Any:
        left, right = (next(iter(self._side(side).values())).copies for side in SIDES)
        return left & right

    def work(self) -> Sequence[Work]:
        """Kept besides parts' outputs: zeros behind the result. The norm's input, the sum, is in its output's place."""
        extra, copied = self.d - self.units, not_kept(self.d, self.over, self)
        parts: Mapping[str, Any] = self.parts()
        for side in SIDES:
            extra = extra - self._units(f"{side}_multiple") * (getattr(self, f"{side}_activation") == "none")
            if f"{side}_rows" in parts:
                width = self.d * (getattr(self, f"{side}_kernel") if getattr(self, side) == "convolution" else 1)
                copied += not_kept(width, self.over, parts[side])
        return [Work((*self.over, extra), "activation"), *copied, *not_kept(self.wide, self.over, parts["out"])]

    def forward(self, m: Any, x: Any, present: Any, bias: Any, cache: Any = None, carried: Any = None) -> Any:
        from torch.nn.functional import pad

        near = self._near(m, x, present, self.seen, cache)
        left, right = (pad(y, (0, self.wide - y.shape[-1])) for y in (self._branch(m, side, x, near) for side in SIDES))
        y = m.norm(left + right)
        y = m.out(m.rows(self._near(m.norm, y, present, self.kernel, cache)))
        return pad(y, (0, self.d - self.units))

    def _branch(self, m: Any, side: str, x: Any, near: Any) -> Any:
        """One branch; ``near``: the positions, with those around them that the wider of the two kernels reaches."""
        from torch.nn import functional

        if getattr(self, side) != "dense":
            kernel: int = getattr(self, f"{side}_kernel")
            first = self._before(self.seen) - self._before(kernel)
            x = getattr(m, f"{side}_rows")(near[:, first : first + x.shape[1] + kernel - 1])
        y, activation = getattr(m, side)(x), ACTIVATIONS[getattr(self, f"{side}_activation")]
        return y if activation is None else dropout(getattr(functional, activation)(y), m.rates.activation, m.training)

    def _before(self, kernel: Size) -> Size:
        """How many positions before its own an output sees."""
        return kernel - 1 if self.decoder else kernel // 2

    def _near(self, key: Any, y: Any, present: Any, kernel: int, cache: Any) -> Any:
        """``y`` with zeros for padding, and ``kernel`` - 1 rows more: zeros, or those of the cache for ``key``."""
        from torch.nn.functional import pad

        y, before = y if present is None else y * present[..., None], self._before(kernel)
        return pad(y, (0, 0, before, kernel - 1 - before)) if cache is None else cache.follow(key, y, before)
