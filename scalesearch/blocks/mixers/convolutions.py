"""Short convolutions instead of attention: lightweight, dynamic (Wu et al. 2019), separable (Kaiser et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from scalesearch.blocks.core import Axes, Block, Shape, Size, Use, Work, block, not_kept
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.leaves import Linear, RowCache
from scalesearch.blocks.mixers.base import Mixer, mixer
from scalesearch.blocks.options import option
from scalesearch.blocks.sizes import truth


@block
class ShortConvolution(Block):
    """Convolution channel by channel: ``heads`` sets of ``kernel`` taps, each for ``d / heads`` channels in a row.

    ``taps``: ``free``; ``softmax``, normalised; ``predicted``, which come in for each position and are normalised too.
    A tap outside the sentence multiplies zero and still counts in the softmax, so that a cache changes nothing.
    """

    d: Size
    kernel: Size
    heads: Size
    over: Axes
    taps: str

    def weights(self) -> Mapping[str, Shape]:
        return {} if self.taps == "predicted" else {"weight": (self.heads, self.kernel)}

    def start(self, name: str) -> str:
        return "table"

    def work(self) -> Sequence[Work]:
        windows: Shape = (*self.over, self.d, self.kernel)
        kept = [Work(windows, "activation"), Work((*self.over, self.d), "activation")]
        normalised = [Work((self.heads, self.kernel), "activation")] if self.taps == "softmax" else []
        return [Work(windows), *kept, *normalised]

    @property
    def copies(self) -> Any:
        return True  # as windows

    @property
    def past(self) -> int:
        """The number of other positions that it sees, at most all of them on one side."""
        return self.kernel - 1

    def forward(self, m: Any, seen: Any, predicted: Any = None) -> Any:
        """(batch, positions + kernel - 1, d), and (batch, positions, heads · kernel) predicted, to (batch, …, d)."""
        windows = seen.unfold(1, self.kernel, 1).unflatten(2, (self.heads, -1))
        if predicted is not None:
            taps = dropout(predicted.unflatten(2, (self.heads, -1)).softmax(-1), m.rates.attention, m.training)
            return (windows @ taps[..., None]).flatten(2)
        taps = m.weight
        if self.taps == "softmax":
            taps = dropout(m.constant("taps", lambda: m.weight.softmax(1)), m.rates.attention, m.training)
        # Heads as the batch of one product: with one for each position it took 1.2 (bf16) to 1.8 times (fp32) as long.
        by_head = windows.permute(2, 0, 1, 3, 4)
        return (by_head.flatten(1, 3) @ taps[..., None]).view(by_head.shape[:-1]).permute(1, 2, 0, 3).flatten(2)


@block
class Convolved(Mixer):
    """A short convolution between matrices, which mix what its channels keep apart; the base of its kinds.

    In an encoder an output sees as many positions after its own as before it, in a decoder none.
    """

    kernel: Size = option("7", doc="positions that an output sees")
    glu: bool = option("no", kind="flag", doc="a gated linear unit before the taps (Dauphin et al. 2017)")

    ends: ClassVar[tuple[str, ...]] = ("out",)
    taps: ClassVar[str]
    projected: ClassVar[bool] = True  # whether there is a matrix before the taps without the gate as well

    @property
    def groups(self) -> Size:
        """The number of sets of taps."""
        raise NotImplementedError

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {}
        if self.glu or self.projected:
            parts["inward"] = self.site(self.d, self.d * 2 if self.glu else self.d, self.over)
        if self.taps == "predicted":
            parts["taps"] = Linear(self.d, self.groups * self.kernel, self.over, bias=False)
        parts["convolution"] = ShortConvolution(self.d, self.kernel, self.groups, self.over, self.taps)
        parts["out"] = self.site(self.d, self.d, self.over)
        return parts | ({"store": RowCache((self.kernel - 1) * self.d)} if self.decoder else {})

    @property
    def copies(self) -> Any:
        parts: Mapping[str, Any] = self.parts()
        return parts.get("inward", parts["convolution"]).copies

    def work(self) -> Sequence[Work]:
        """What its windows are copies of is not kept, unless taps are predicted from it."""
        kept = not_kept(self.d, self.over, self)
        predicted, between = self.taps == "predicted", self.glu or not self.projected
        extra = 1 if predicted and between else -1 if not predicted and not between else 0
        return [*kept, Work((*self.over, extra * self.d), "activation")] if extra else kept

    def forward(self, m: Any, x: Any, present: Any, bias: Any, cache: Any = None, carried: Any = None) -> Any:
        from torch.nn.functional import glu, pad

        y = m.inward(x) if self.glu or self.projected else x
        y = glu(y) if self.glu else y
        # Right before the taps: what a matrix makes of zeros is its bias.
        y = y if present is None else y * present[..., None]
        before = self.kernel - 1 if self.decoder else self.kernel // 2
        seen = pad(y, (0, 0, before, self.kernel - 1 - before)) if cache is None else cache.follow(m, y, before)
        return m.out(m.convolution(seen, *([m.taps(y)] if self.taps == "predicted" else [])))


@block
class ConvolvedByHeads(Convolved):
    """A short convolution with a set of taps for each of ``heads`` groups of channels."""

    heads: Size = option("4", doc="sets of taps, each for as many channels")

    @property
    def groups(self) -> Size:
        return self.heads

    def misfit(self) -> tuple[str, str] | None:
        return ("heads", f"{self.heads} do not divide {self.d} channels") if truth(self.d % self.heads != 0) else None


@mixer("lightweight")
@block
class LightweightConvolution(ConvolvedByHeads):
    """A lightweight convolution: taps add up to 1 (Wu et al. 2019, section 3)."""

    taps: ClassVar[str] = "softmax"


@mixer("dynamic")
@block
class DynamicConvolution(ConvolvedByHeads):
    """A dynamic convolution: each position chooses its taps, which add up to 1 (Wu et al. 2019, section 4)."""

    taps: ClassVar[str] = "predicted"


@mixer("separable")
@block
class SeparableConvolution(Convolved):
    """A depthwise convolution, then a matrix (Kaiser et al. 2018)."""

    taps: ClassVar[str] = "free"
    projected: ClassVar[bool] = False

    @property
    def groups(self) -> Size:
        return self.d
