"""The feed-forward networks of the library: of two matrices, gated, without matrices, none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from scalesearch.blocks.core import Block, Size, Use, Work, block, not_kept
from scalesearch.blocks.elementwise import dropout
from scalesearch.blocks.ffn.base import FFN, ffn
from scalesearch.blocks.norms import NORM_KINDS
from scalesearch.blocks.options import option


@block
class TwoLayer(FFN):
    """W₂ act(W₁ x + b₁) + b₂; (batch, positions, d) to the same."""

    hidden: Size = option("= 4 * width", low=1, doc="hidden units")

    ends: ClassVar[tuple[str, ...]] = ("down",)
    units: ClassVar[str | None] = "up"
    normable: ClassVar[bool] = True
    activation: ClassVar[str]  # a function of torch.nn.functional

    def parts(self) -> Mapping[str, Block | Use]:
        down = self.site(self.hidden, self.d, self.over)
        return {"up": self.site(self.d, self.hidden, self.over), **_norm(self, self.hidden), "down": down}

    def work(self) -> Sequence[Work]:
        parts: Mapping[str, Any] = self.parts()
        unread, read = not_kept(self.d, self.over, parts["up"]), not_kept(self.hidden, self.over, parts["down"])
        if self.activation == "relu":  # its backward pass needs the output alone, which a norm needs too
            return [*unread, *read] if self.normed else unread
        return [Work((*self.over, self.hidden), "activation"), *unread, *read]

    def forward(self, m: Any, x: Any) -> Any:
        hidden = _activated(self.activation, m.up(x))
        return m.down(dropout(m.norm(hidden) if self.normed else hidden, m.rates.activation, m.training))


@ffn("relu")
@block
class ReLU(TwoLayer):
    """ReLU between the matrices (Vaswani et al. 2017, eq. 2)."""

    activation: ClassVar[str] = "relu"


@ffn("gelu")
@block
class GELU(TwoLayer):
    """GELU between the matrices (Hendrycks & Gimpel 2016)."""

    activation: ClassVar[str] = "gelu"


@ffn("swish")
@block
class Swish(TwoLayer):
    """SiLU ("swish") between the matrices (Ramachandran et al. 2017; DeLighT)."""

    activation: ClassVar[str] = "silu"


@block
class Gated(FFN):
    """W₂ (act(W_g x) ⊙ W₁ x), all with biases. The default hidden size keeps a plain FFN's parameters (8/3 · width)."""

    hidden: Size = option("= 8 * width // 3", low=1, doc="hidden units of each half")

    ends: ClassVar[tuple[str, ...]] = ("down",)
    units: ClassVar[str | None] = "gate"
    normable: ClassVar[bool] = True
    activation: ClassVar[str]  # of the gate

    def parts(self) -> Mapping[str, Block | Use]:
        up = self.site(self.d, self.hidden, self.over)
        return {"gate": up, "up": up, **_norm(self, self.hidden), "down": self.site(self.hidden, self.d, self.over)}

    def work(self) -> Sequence[Work]:
        up, down = self.parts()["up"], self.parts()["down"]
        kept = Work((*self.over, 2 * self.hidden), "activation")  # the gate, and what it has gated
        return [kept, *not_kept(self.d, self.over, up), *not_kept(self.hidden, self.over, down)]

    def forward(self, m: Any, x: Any) -> Any:
        gated = _activated(self.activation, m.gate(x)) * m.up(x)
        return m.down(dropout(m.norm(gated) if self.normed else gated, m.rates.activation, m.training))


@ffn("geglu")
@block
class GEGLU(Gated):
    """A GELU gate (Shazeer 2020; Anthe, section 3)."""

    activation: ClassVar[str] = "gelu"


@ffn("swiglu")
@block
class SwiGLU(Gated):
    """A SiLU ("swish") gate (Shazeer 2020)."""

    activation: ClassVar[str] = "silu"


@ffn("none")
@block
class NoFFN(FFN):
    """An absent sub-layer."""

    empty: ClassVar[bool] = True


@ffn("self_gated")
@block
class SelfGated(FFN):
    """SiLU(x) ⊙ x, without weights; the sub-layer keeps its residual and its norm."""

    def work(self) -> Sequence[Work]:
        return [Work((*self.over, 2 * self.d), "activation")]

    def forward(self, m: Any, x: Any) -> Any:
        return _activated("silu", x) * x


def _norm(network: FFN, hidden: Size) -> dict[str, Block]:
    """The norm of hidden units, if there is one."""
    return {"norm": NORM_KINDS[network.normed](hidden, network.over)} if network.normed else {}


def _activated(name: str, x: Any) -> Any:
    from torch.nn import functional

    return getattr(functional, name)(x)
