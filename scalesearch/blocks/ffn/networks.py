"""Feed-forward networks of the library: two layers, gated, without matrices, absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import Block, LoopNest, Size, Use, block, discarded_activations
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.ffn.base import FFN, register_ffn
from scalesearch.blocks.norms import NORM_CLASSES
from scalesearch.blocks.options import option_field

if TYPE_CHECKING:
    from torch import Tensor


@block
class TwoLayerFFN(FFN):
    """Base class of W₂ act(W₁ x + b₁) + b₂: (batch, positions, d) to (batch, positions, d)."""

    hidden: Size = option_field("= 4 * width", minimum=1, doc="hidden units")

    output_projections: ClassVar[tuple[str, ...]] = ("down",)
    hidden_part: ClassVar[str | None] = "up"
    supports_norm: ClassVar[bool] = True
    activation: ClassVar[str]  # name of a function of torch.nn.functional

    def parts(self) -> Mapping[str, Block | Use]:
        down = self.linear_factory(self.hidden, self.d, self.over)
        return {"up": self.linear_factory(self.d, self.hidden, self.over),
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
    """Base class of W₂ (act(W_g x) ⊙ W₁ x), all with biases.

    With the default hidden size (8/3 · width) it has as many parameters as a two-layer network.
    """

    hidden: Size = option_field("= 8 * width // 3", minimum=1,
                                doc="hidden units of the gate and of the gated map, each")

    output_projections: ClassVar[tuple[str, ...]] = ("down",)
    hidden_part: ClassVar[str | None] = "gate"
    supports_norm: ClassVar[bool] = True
    activation: ClassVar[str]  # of the gate, a function of torch.nn.functional

    def parts(self) -> Mapping[str, Block | Use]:
        up = self.linear_factory(self.d, self.hidden, self.over)
        return {"gate": up, "up": up, **_norm(self, self.hidden),
                "down": self.linear_factory(self.hidden, self.d, self.over)}

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
