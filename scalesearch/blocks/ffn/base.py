"""Base class and registry of feed-forward networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

from scalesearch.blocks.core import Block, LinearFactory, Shape, Size, block
from scalesearch.blocks.options import register


@block
class FFN(Block):
    """Base class of feed-forward networks: (…, d) to (…, d), at each position.

    Options of a subclass are fields defined by :func:`~scalesearch.blocks.options.option_field`. If
    it has an option ``hidden``, it can also be used inside heads.

    Attributes:
        d: features.
        over: axes.
        linear_factory: ``linear_factory(d_in, d_out, over)`` returns a linear map.
        norm_type: type of a norm of the hidden units; empty for no norm.
    """

    d: Size
    over: Shape
    linear_factory: LinearFactory

    norm_type: str = field(default="", kw_only=True, metadata={"plain": ""})

    is_absent: ClassVar[bool] = False  # whether a layer omits the network and its norm
    # linear maps with outputs that are summed: if their weights are zero, so is the output
    output_projections: ClassVar[tuple[str, ...]] = ()
    # part whose positive outputs are active hidden units
    hidden_part: ClassVar[str | None] = None
    supports_norm: ClassVar[bool] = False  # whether ``norm_type`` is used

    @property
    def copies_input(self) -> Any:
        parts: Any = self.parts()
        return parts[self.hidden_part].copies_input if self.hidden_part else False

    def residual_roles(self) -> Mapping[str, str]:
        return {**dict.fromkeys(self.parts(), "residual_in"),
                **dict.fromkeys(self.output_projections, "residual_out")}


FFNS: dict[str, type[FFN]] = {}
# decorator @register_ffn("name") of a class of feed-forward networks
register_ffn = partial(register, FFNS)
