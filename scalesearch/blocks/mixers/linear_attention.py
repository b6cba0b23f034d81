"""Gated linear attention: a recurrence of matrices with a decay (Yang et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import STEP_AXES, Block, LoopNest, Size, Use, block
from scalesearch.blocks.leaves import Linear, MatMul, StateCache
from scalesearch.blocks.mixers.base import Mixer, register_mixer
from scalesearch.blocks.norms import RMSNorm
from scalesearch.blocks.options import option_field
from scalesearch.blocks.sizes import decide

if TYPE_CHECKING:
    from torch import Tensor

DECAY_TEMPERATURE = 16  # the decay is σ(…)^(1/16), so that it is close to 1


@register_mixer("linear_attention")
@block
class GatedLinearAttention(Mixer):
    """Linear attention with a decay per head, and a gate (Yang et al. 2024, sec. 4.4).

    S_t = a_t S_{t-1} + k_t v_tᵀ and o_t = q_t S_t / √key_dim for each head, with a decay
    a_t = σ(w x_t + b)^(1/16). The output is W (RMSNorm(o_t) ⊙ SiLU(G x_t)). As in Mamba 2, a head
    has one decay, and not one per feature. In an encoder, a key at any side has the product of the
    decays between both positions as its weight.

    A pass computes the weights of all pairs of positions. A decoding step updates S.
    """

    heads: Size = option_field("4", doc="states, each with its own decay and width // heads values")
    key_dim: Size = option_field("= max(1, width // 8)",
                                 doc="features of queries and keys of a head")

    output_projections: ClassVar[tuple[str, ...]] = ("out",)

    def validate(self) -> tuple[str, str] | None:
        if decide(self.d % self.heads != 0):
            return "heads", f"{self.d} channels are not a multiple of {self.heads}"
        return None

    def parts(self) -> Mapping[str, Block | Use]:
        keys = self.heads * self.key_dim
        values = self.d // self.heads
        dense = self.linear_factory(self.d, self.d, self.over)
        parts: dict[str, Block | Use] = {
            "query": self.linear_factory(self.d, keys, self.over),
            "key": self.linear_factory(self.d, keys, self.over),
            "value": dense,
            "decay": Linear(self.d, self.heads, self.over),
            "gate": dense,
            "product": MatMul((self.heads, self.queries), self.key_dim, self.queries),
            "mix": MatMul((self.heads, self.queries), self.queries, values, keys_are_inner=True),
            "norm": RMSNorm(values, (self.queries, self.heads)),
            "out": dense}
        if self.decoder:
            step = STEP_AXES[self.queries]
            parts |= {"update": MatMul((self.heads, self.key_dim), step, values,
                                       saved_for_backward=False),
                      "read": MatMul((self.heads, step), self.key_dim, values,
                                     saved_for_backward=False),
                      "store": StateCache(keys * values)}
        return parts

    @property
    def copies_input(self) -> Any:
        return False  # the map of the decay reads the input itself

    def loop_nests(self) -> Sequence[LoopNest]:
        # weights of pairs by distance, their products with the scores, SiLU of the gate, its
        # product
        return [LoopNest((2 * self.heads, self.queries, self.queries), "activation"),
                LoopNest((*self.over, 2 * self.d), "activation")]

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None) -> Tensor:
        import torch
        from torch.nn.functional import logsigmoid, silu

        key = module.key(x)
        log_decay = logsigmoid(module.decay(x).to(torch.promote_types(x.dtype, torch.float32)))
        if token_mask is not None:  # padding changes no state
            key = key * token_mask[..., None]
            log_decay = log_decay * token_mask[..., None]
        age = (log_decay / DECAY_TEMPERATURE).cumsum(1).transpose(1, 2)  # (batch, heads, positions)
        q, k, v = (features.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for features in (module.query(x) * self.key_dim**-0.5, key, module.value(x)))
        positions = torch.arange(x.shape[1], device=x.device)
        is_later = positions > positions[:, None]  # (queries, keys)
        distance = age[..., None] - age[..., None, :]  # (batch, heads, queries, keys), at most 0
        distance = (distance.masked_fill(is_later, -torch.inf) if self.decoder
                    else torch.where(is_later, -distance, distance))
        weights = module.product(q, k.transpose(2, 3)) * distance.exp().to(q.dtype)
        mixed = module.mix(weights, v)  # (batch, heads, positions, values)
        if cache is not None:
            remaining = (age[..., -1:] - age).exp().to(k.dtype)
            update = module.update((k * remaining[..., None]).transpose(2, 3), v)
            stored = cache.read_state(module)
            state = age.new_zeros(update.shape) if stored is None else stored.view(update.shape)
            mixed = mixed + module.read(q * age.exp().to(q.dtype)[..., None], state.to(q.dtype))
            state = state * age[..., -1:, None].exp() + update
            cache.store_state(module, state.flatten(1)[:, None])
        normed = module.norm(mixed.transpose(1, 2)).flatten(2)
        return module.out(normed * silu(module.gate(x)))
