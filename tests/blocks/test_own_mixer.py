"""A user-defined mixer: lightweight convolutions (Wu et al. 2019)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

from scalesearch.blocks.core import Block, LoopNest, Shape, Size, Use, block
from scalesearch.blocks.leaves import StateCache
from scalesearch.blocks.mixers import MIXERS, Mixer, register_mixer
from scalesearch.blocks.options import option_field
from scalesearch.spaces import Space, UnbuildableError
from scalesearch.testing import check_mixer


@block
class Taps(Block):
    """A depthwise convolution with ``groups`` sets of ``kernel`` softmax-normalized taps."""

    d: Size
    kernel: Size
    groups: Size
    over: Shape

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (self.groups, self.kernel)}

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, self.d, self.kernel)),
                LoopNest((*self.over, self.d, 1 + self.kernel), "activation")]

    def forward(self, module: Any, windowed: Any) -> Any:
        """Map (batch, positions + kernel - 1, d) to (batch, positions, d)."""
        windows = windowed.unfold(1, self.kernel, 1).unflatten(2, (self.groups, -1))
        return (windows @ module.weight.softmax(1)[:, :, None]).flatten(2)


@block
class LightConv(Mixer):
    """A gated linear unit, a lightweight convolution, a matrix (Wu et al. 2019, section 3)."""

    kernel: Size = option_field("3", choices=(1, 3, 5, 7), doc="positions that an output reads")
    groups: Size = option_field("= width // 4", doc="sets of taps, each for some features")

    def validate(self) -> tuple[str, str] | None:
        return ("groups",
                f"{self.groups} do not divide the width {self.d}") if self.d % self.groups else None

    def parts(self) -> Mapping[str, Block | Use]:
        inward = self.linear_factory(self.d, 2 * self.d, self.over)
        cache = {"cache": StateCache((self.kernel - 1) * self.d)} if self.decoder else {}
        taps = Taps(self.d, self.kernel, self.groups, self.over)
        return {"inward": inward, "taps": taps,
                "out": self.linear_factory(self.d, self.d, self.over), **cache}

    def forward(self, module: Any, x: Any, token_mask: Any, bias: Any, cache: Any = None,
                carried_scores: Any = None) -> Any:
        y = torch.nn.functional.glu(module.inward(x))
        y = y if token_mask is None else y * token_mask[..., None]
        past = self.kernel - 1 if self.decoder else (self.kernel - 1) // 2
        if cache is None:
            windowed = pad(y, (0, 0, past, self.kernel - 1 - past))
        else:
            windowed = cache.append_window(module, y, past)
        return module.out(module.taps(windowed))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register_mixer("lightconv")(LightConv)
    yield
    del MIXERS["lightconv"]


@pytest.mark.full
def test_registered_mixer_passes_the_public_check() -> None:
    check_mixer("lightconv")


def test_inconsistent_sizes_and_unsupported_adapters_are_unbuildable() -> None:
    for more, adapt, path in (({"groups": 3}, "bias", "encoder.mixer.lightconv.groups"),
                              ({}, "lora", "adapt")):
        space = Space.from_python({"width": 8, "encoder": {"mixer": {"lightconv": more}},
                                   "adapt": adapt})
        with pytest.raises(UnbuildableError) as caught:
            space.single_architecture()
        assert caught.value.key == path
