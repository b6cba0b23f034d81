"""Feed-forward networks: base class, registry, and the networks of the library.

See docs/develop/blocks.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import (
    Block,
    LinearFactory,
    LoopNest,
    Shape,
    Size,
    Use,
    block,
    discarded_activations,
)
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.norms import NORM_CLASSES
from scalesearch.blocks.options import option_field, register

if TYPE_CHECKING:
    from torch import Tensor


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
        bias: whether the linear maps have biases.
    """

    d: Size
    over: Shape
    linear_factory: LinearFactory

    norm_type: str = field(default="", kw_only=True, metadata={"plain": ""})
    bias: bool = field(default=True, kw_only=True, metadata={"plain": True})

    is_absent: ClassVar[bool] = False  # whether a layer omits the network and its norm
    # linear maps with outputs that are summed: if their weights are zero, so is the output
    output_projections: ClassVar[tuple[str, ...]] = ()
    # part whose positive outputs are active hidden units
    hidden_part: ClassVar[str | None] = None
    supports_norm: ClassVar[bool] = False  # whether ``norm_type`` is used
    supports_bias: ClassVar[bool] = False  # whether ``bias`` is used

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


@block
class TwoLayerFFN(FFN):
    """Base class of W₂ act(W₁ x + b₁) + b₂ at each position."""

    hidden: Size = option_field("= 4 * width", minimum=1, doc="hidden units")

    output_projections: ClassVar[tuple[str, ...]] = ("down",)
    hidden_part: ClassVar[str | None] = "up"
    supports_norm: ClassVar[bool] = True
    supports_bias: ClassVar[bool] = True
    activation: ClassVar[str]  # name of a function of torch.nn.functional

    def parts(self) -> Mapping[str, Block | Use]:
        down = self.linear_factory(self.hidden, self.d, self.over, self.bias)
        return {"up": self.linear_factory(self.d, self.hidden, self.over, self.bias),
                **_norm(self, self.hidden), "down": down}

    def loop_nests(self) -> Sequence[LoopNest]:
        parts: Mapping[str, Any] = self.parts()
        nests = discarded_activations(self.d, self.over, parts["up"])
        # The backward pass of ReLU needs its output, that of other activations also their input.
        if self.activation != "relu" or self.norm_type:
            nests += discarded_activations(self.hidden, self.over, parts["down"])
        if self.activation != "relu":
            nests.append(LoopNest((*self.over, self.hidden), "activation"))
        return nests

    def forward(self, module: Any, x: Tensor) -> Tensor:
        hidden = _apply_activation(self.activation, module.up(x))
        hidden = module.norm(hidden) if self.norm_type else hidden  # (batch, positions, hidden)
        return module.down(dropout(hidden, module.dropout_rates.activation, module.training))


@register_ffn("relu")
@block
class ReLU(TwoLayerFFN):
    """Network with ReLU (Vaswani et al. 2017, eq. 2)."""

    activation: ClassVar[str] = "relu"


@register_ffn("gelu")
@block
class GELU(TwoLayerFFN):
    """Network with GELU (Hendrycks & Gimpel 2016)."""

    activation: ClassVar[str] = "gelu"


@register_ffn("swish")
@block
class Swish(TwoLayerFFN):
    """Network with SiLU ("swish") (Ramachandran et al. 2017; DeLighT)."""

    activation: ClassVar[str] = "silu"


@block
class GatedFFN(FFN):
    """Base class of W₂ (act(W_g x) ⊙ W₁ x), all with biases unless ``bias`` is false.

    With the default hidden size (8/3 · width) it has as many parameters as a two-layer network.
    """

    hidden: Size = option_field("= 8 * width // 3", minimum=1,
                                doc="hidden units of the gate and of the gated map, each")

    output_projections: ClassVar[tuple[str, ...]] = ("down",)
    hidden_part: ClassVar[str | None] = "gate"
    supports_norm: ClassVar[bool] = True
    supports_bias: ClassVar[bool] = True
    activation: ClassVar[str]  # of the gate, a function of torch.nn.functional

    def parts(self) -> Mapping[str, Block | Use]:
        up = self.linear_factory(self.d, self.hidden, self.over, self.bias)
        return {"gate": up, "up": up, **_norm(self, self.hidden),
                "down": self.linear_factory(self.hidden, self.d, self.over, self.bias)}

    def loop_nests(self) -> Sequence[LoopNest]:
        up = self.parts()["up"]
        down = self.parts()["down"]
        gate_and_product = LoopNest((*self.over, 2 * self.hidden), "activation")
        return [gate_and_product, *discarded_activations(self.d, self.over, up),
                *discarded_activations(self.hidden, self.over, down)]

    def forward(self, module: Any, x: Tensor) -> Tensor:
        hidden = _apply_activation(self.activation, module.gate(x)) * module.up(x)
        hidden = module.norm(hidden) if self.norm_type else hidden  # (batch, positions, hidden)
        return module.down(dropout(hidden, module.dropout_rates.activation, module.training))


@register_ffn("geglu")
@block
class GEGLU(GatedFFN):
    """Gated network with GELU (Shazeer 2020; Anthe, section 3)."""

    activation: ClassVar[str] = "gelu"


@register_ffn("swiglu")
@block
class SwiGLU(GatedFFN):
    """Gated network with SiLU ("swish") (Shazeer 2020)."""

    activation: ClassVar[str] = "silu"


@register_ffn("none")
@block
class NoFFN(FFN):
    """An absent sub-layer."""

    is_absent: ClassVar[bool] = True


@register_ffn("self_gated")
@block
class SelfGated(FFN):
    """SiLU(x) ⊙ x, without weights; the sub-layer has its residual and its norm."""

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, 2 * self.d), "activation")]

    def forward(self, module: Any, x: Tensor) -> Tensor:
        return _apply_activation("silu", x) * x


def _norm(network: FFN, hidden: Size) -> dict[str, Block]:
    """Return the norm of the hidden units by part name, if any."""
    if not network.norm_type:
        return {}
    return {"norm": NORM_CLASSES[network.norm_type](hidden, network.over)}


def _apply_activation(name: str, x: Tensor) -> Tensor:
    from torch.nn import functional

    return getattr(functional, name)(x)
