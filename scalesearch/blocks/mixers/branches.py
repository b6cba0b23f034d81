"""Two mixers in one sub-layer: on a share of the channels each, added up, or one before the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scalesearch.blocks.core import Block, Use, Work, block
from scalesearch.blocks.elementwise import plus
from scalesearch.blocks.mixers.base import Mixer, ScoreSets

JOINS = ("split", "sum", "before")


@block
class Branches(Mixer):
    """``local`` beside ``main``: ``split``, the last channels are its own (Wu et al. 2020), ``sum``, or ``before``."""

    main: Mixer
    local: Mixer
    join: str

    @property
    def scores(self) -> ScoreSets | None:
        return self.main.scores

    @property
    def added(self) -> Mapping[str, Mixer]:
        return {"main": self.main} | ({} if self.join == "before" else {"local": self.local})

    def parts(self) -> Mapping[str, Block | Use]:
        return {"main": self.main, "local": self.local}

    def work(self) -> Sequence[Work]:
        """What the two say each, put right: an input is kept if one of them reads it in place, outputs as their sum."""
        if self.join == "before":
            return []
        main, local = self.main, self.local
        kept = main.d * main.copies + local.d * local.copies - self.d * (main.copies & local.copies)
        return [Work((*self.over, kept - (self.d if self.join == "sum" else 0)), "activation")]

    def forward(self, m: Any, x: Any, present: Any, bias: Any, cache: Any = None, carried: Any = None) -> Any:
        import torch

        context = (present, bias, cache, carried)
        if self.join == "split":
            mine, theirs = x.split([self.main.d, self.local.d], -1)
            return torch.cat([m.main(mine, *context), m.local(theirs, *context)], -1)
        if self.join == "before":
            return m.main(m.local(x, *context), *context)
        return plus(m.main(x, *context), m.local(x, *context))
