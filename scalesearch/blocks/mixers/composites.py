"""Mixers with other mixers as parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Block, LoopNest, Use, block
from scalesearch.blocks.elementwise import add_promoted
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.maps.dextra import DExTra
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.mixers.base import AttentionScoreShape, Mixer
from scalesearch.blocks.norms import NORM_CLASSES, norm_type_field

if TYPE_CHECKING:
    from torch import Tensor

JOIN_MODES = ("split", "sum", "before")


@block
class DualMixer(Mixer):
    """Two mixers in one sub-layer.

    Attributes:
        main: the main mixer, usually attention.
        local: the other mixer.
        join: ``split``, each has its own channels, those of ``local`` are the last ones (Wu et al.
            2020); ``sum``, their outputs are added; ``before``, ``local`` is applied first.
    """

    main: Mixer
    local: Mixer
    join: str

    @property
    def score_shape(self) -> AttentionScoreShape | None:
        return self.main.score_shape

    @property
    def branches(self) -> Mapping[str, Mixer]:
        return {"main": self.main} | ({} if self.join == "before" else {"local": self.local})

    def parts(self) -> Mapping[str, Block | Use]:
        return {"main": self.main, "local": self.local}

    def loop_nests(self) -> Sequence[LoopNest]:
        """Return the correction of the activations of the two mixers.

        Their common input is stored if at least one of them does not copy it, and their sum is
        stored instead of their outputs.
        """
        if self.join == "before":
            return []
        main = self.main
        local = self.local
        size = main.d * main.copies_input + local.d * local.copies_input - self.d * (
            main.copies_input & local.copies_input)
        return [LoopNest((*self.over, size - (self.d if self.join == "sum" else 0)), "activation")]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        import torch

        context = (token_mask, bias, cache, carried_scores)
        if self.join == "split":
            first, last = x.split([self.main.d, self.local.d], -1)
            return torch.cat([module.main(first, *context), module.local(last, *context)], -1)
        if self.join == "before":
            return module.main(module.local(x, *context), *context)
        return add_promoted(module.main(x, *context), module.local(x, *context))


@block
class DExTraAttention(Mixer):
    """The attention ``main`` with the output of ``lift`` as input.

    The attention has fewer features (DeLighT, Mehta et al. 2021, section 3.2).
    """

    main: Attention
    lift: DExTra

    @property
    def score_shape(self) -> AttentionScoreShape | None:
        return self.main.score_shape

    @property
    def branches(self) -> Mapping[str, Mixer]:
        return {"main": self.main}

    def parts(self) -> Mapping[str, Block | Use]:
        return {"lift": self.lift, "main": self.main}

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        return module.main(module.lift(x), token_mask, bias, cache, carried_scores)


@block
class ProjectedCrossAttention(Mixer):
    """Cross-attention ``main`` with the width of the memory.

    Linear maps and norms before and after it project from the width of the layer and back
    (Subformer, Reid et al. 2021, released code).
    """

    main: Mixer
    norm_kind: str = norm_type_field()

    @property
    def score_shape(self) -> AttentionScoreShape | None:
        return self.main.score_shape

    def parts(self) -> Mapping[str, Block | Use]:
        norm = NORM_CLASSES[self.norm_kind]
        inner = self.main.d
        return {"enter": Linear(self.d, inner, self.over), "enter_norm": norm(inner, self.over),
                "main": self.main, "leave": Linear(inner, self.d, self.over),
                "leave_norm": norm(self.d, self.over)}

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None,
                memory: Tensor | None = None) -> Tensor:
        y = module.main(module.enter_norm(module.enter(x)), token_mask, bias, cache, carried_scores,
                        memory)
        return module.leave_norm(module.leave(y))
