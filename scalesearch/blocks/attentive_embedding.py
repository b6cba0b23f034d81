"""Self-attentive embedding factorization (Subformer, Reid et al. 2021, sec. 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import PAD, Axes, Block, Size, Use, block
from scalesearch.blocks.elementwise import autocast_input, dropout
from scalesearch.blocks.embedding import sinusoidal_positions
from scalesearch.blocks.layers import Layer
from scalesearch.blocks.leaves import Linear, PositionTable
from scalesearch.blocks.norms import NORM_CLASSES
from scalesearch.blocks.seq2seq import causal_positions, mask_bias

if TYPE_CHECKING:
    from torch import Tensor


@block
class AttentiveEmbedding(Block):
    """A narrow table, attention over its rows, and a projection to ``d`` features.

    The inputs are those of :class:`TokenEmbedding`. The output is W₂ relu(W₁ x + b₁) + b₂ without a
    residual, with x = layer(√r · table[token] + position) of r features. In a post-norm model, the
    norm is applied to the output, otherwise to x. In a decoder, the layer is causal and has its own
    cache.

    Attributes:
        d: features of the output.
        over: axes.
        table: block that looks up tokens.
        layer: the attention layer.
        positions: one of ``POSITION_TYPES``.
        max_length: number of learned positions.
        tied_table: path of the table whose weights ``table`` uses; None if it has its own.
    """

    d: Size
    over: Axes
    table: Block
    layer: Layer
    positions: str = "sinusoidal"
    max_length: Size = 1024
    tied_table: str | None = field(default=None, metadata={"plain": None})

    @property
    def rank(self) -> Size:
        """Features of the table."""
        return self.layer.mixer.d

    def parts(self) -> Mapping[str, Block | Use]:
        rank = self.rank
        over = self.over
        parts: dict[str, Block | Use] = {"table": Use(self.table, tied=self.tied_table)}
        if self.positions == "learned":
            parts["position"] = PositionTable(rank, self.max_length)
        norm = NORM_CLASSES[self.layer.norm_kind](
            self.d if self.layer.norm == "post" else rank, over)
        maps = {"up": Linear(rank, rank, over), "down": Linear(rank, self.d, over)}
        return parts | {"layer": self.layer, "norm": norm, **maps}

    def forward(self, module: Any, tokens: Tensor, positions: Tensor, cache: Any = None,
                present: Tensor | None = None) -> Tensor:
        x = module.table(tokens) * self.rank**0.5
        if self.positions != "none":
            x = x + (module.position(positions) if self.positions == "learned"
                     else sinusoidal_positions(positions, self.rank, x.dtype, self.positions))
        x = dropout(x, module.dropout_rates.residual, module.training)
        if self.layer.mixer.decoder:
            present = None
            _, hidden = causal_positions(tokens, cache)
        else:
            present = tokens != PAD
            hidden = ~present[:, None, None, :]
        bias = None if hidden is None else autocast_input(mask_bias(hidden, x.dtype))
        x = module.layer(x, present, bias, None, None, None, cache)
        is_pre_norm = self.layer.norm != "post"
        x = dropout(module.down(module.up(module.norm(x) if is_pre_norm else x).relu()),
                    module.dropout_rates.residual, module.training)
        return x if is_pre_norm else module.norm(x)
