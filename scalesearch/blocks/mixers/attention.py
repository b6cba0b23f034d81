"""Multi-head attention with heads × head_dim free of the width (Vaswani et al.

2017, section 3.2), and its variants.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import Axis, Block, LinearFactory, LoopNest, Size, Use, block, discarded_activations
from scalesearch.blocks.leaves import FusedAttention, KeyValueCache, Linear
from scalesearch.blocks.maps.linear_factories import DENSE, IDENTITY, LowRankAdapter
from scalesearch.blocks.mixers.attention_extras import ADAPTABLE_PARTS, PartialFFN, PromptVectors
from scalesearch.blocks.mixers.base import AttentionScoreShape, Mixer, register_mixer
from scalesearch.blocks.mixers.gates import Gating
from scalesearch.blocks.mixers.mask import DynamicMask
from scalesearch.blocks.mixers.rotary import apply_rotary, cached_length
from scalesearch.blocks.mixers.scores import ExplicitAttention
from scalesearch.blocks.sizes import decide, is_set

if TYPE_CHECKING:
    from torch import Tensor


@register_mixer("attention")
@block
class Attention(Mixer):
    """Attention within a sequence, or across: keys and values from a ``memory`` (batch, keys, d).

    ``heads`` value heads of ``head_dim`` and ``score_heads`` sets of scores. Where these differ, a
    set of scores serves ``heads / score_heads`` consecutive value heads, or ``expands_heads`` makes
    as many sets as there are value heads (PartialFormer's head scaling). ``kv_heads`` > 0: so many
    heads of keys and values, each serving consecutive heads (grouped-query attention, Ainslie et
    al. 2023; 1 is multi-query).

    Axes: ``queries`` positions ask; ``projected_axis`` positions are turned into keys and values in
    this pass; ``keys`` positions are attended to. The three differ when earlier keys are cached.

    Further: ``clip`` (relative keys), ``mask_distance`` > 0 (a learned one, of so many distances to
    each side), ``rotary`` (positions by rotation), ``residual_scores`` (RealFormer), ``gate``
    (Anthe), ``head_ffn`` (PartialFormer), ``adapters`` of ``adapter_rank`` and ``prompt_length``
    vectors (EdgeFormer). ``linear_factory`` makes the three input maps, ``output_factory`` the
    output map, all with biases unless ``bias`` says otherwise.
    """

    heads: Size
    head_dim: Size
    score_heads: Size
    projected_axis: Axis
    keys: Axis
    cross: bool = False  # whether keys and values come from another sequence
    expands_heads: bool = False
    kv_heads: Size = 0
    clip: Size = 0
    residual_scores: bool = False
    gate: str = "none"
    head_ffn: PartialFFN | None = None
    adapters: tuple[str, ...] = ()
    adapter_rank: Size = 0
    prompt_length: Size = 0
    rotary: bool = field(default=False, metadata={"plain": False})
    mask_distance: Size = field(default=0, metadata={"plain": 0})
    d_out: Size = field(default=0, metadata={"plain": 0})  # where it is not d
    output_factory: LinearFactory = field(default=DENSE, metadata={"plain": DENSE})
    bias: bool = field(default=True, metadata={"plain": True})

    part_name: ClassVar[str] = "attention"
    has_scores: ClassVar[bool] = True
    output_projections: ClassVar[tuple[str, ...]] = ("out", "out_adapter.up")
    adaptable_parts: ClassVar[tuple[str, ...]] = ADAPTABLE_PARTS

    @property
    def score_shape(self) -> AttentionScoreShape:
        """Its sets of scores as they reach the softmax."""
        return AttentionScoreShape(self.bias_heads, self.head_dim, self.keys)

    @property
    def second_call(self) -> Attention:
        return replace(self, mask_distance=0)

    def validate(self) -> tuple[str, str] | None:
        heads = self.heads
        sets = self.score_heads
        shared = self.kv_heads
        if not self.expands_heads and decide(heads % sets != 0):
            return ("score_heads",
                    f"{sets} score heads do not divide {heads} value heads; head_scaling: mlp "
                    "allows it")
        if is_set(shared) and (decide(heads % shared != 0) or decide(sets % shared != 0)):
            return "key_value_heads", f"{shared} do not divide {heads} heads and {sets} score heads"
        if is_set(shared) and not self.expands_heads and decide(heads != sets):
            return ("key_value_heads",
                    f"goes with as many score_heads as heads, not with {sets} and {heads}")
        if self.rotary and is_set(self.clip):
            return "rotary", "does not go with relative_positions, which take queries as they are"
        if self.rotary and decide(self.head_dim % 2 != 0):
            return "rotary", f"turns pairs of features, and head_dim is {self.head_dim}"
        return self._validate_raw_widths()

    def _validate_raw_widths(self) -> tuple[str, str] | None:
        """The key at fault where features without a matrix differ from the width."""
        identity = self.linear_factory == IDENTITY
        raw = "QKV" if identity else "" if self.gate == "none" else self.gating.gating_role
        key = "projections" if identity else "cross_gate" if self.cross else "gate"
        for role in raw:
            if decide(self.widths[role] != self.d):
                name = {"Q": "queries", "K": "keys", "V": "values"}[role]
                return key, (f"{name} stay as they are, so heads x head_dim of them must be width "
                             f"{self.d}, not {self.widths[role]}")
        return None

    @property
    def gating(self) -> Gating:
        """The gate between queries, keys and values."""
        return Gating(self.gate, self.cross)

    @property
    def widths(self) -> dict[str, Size]:
        """Features of query, key and value over all heads."""
        sets, values = (
            (self.kv_heads,) * 2) if is_set(self.kv_heads) else (self.score_heads, self.heads)
        return {"Q": self.score_heads * self.head_dim, "K": sets * self.head_dim,
                "V": values * self.head_dim}

    @property
    def bias_heads(self) -> Size:
        """The number of score sets at the softmax."""
        return self.heads if self.expands_heads else self.score_heads

    def _maps(self) -> dict[str, Block]:
        """The maps that queries, keys and values come from, by slot."""
        gating = self.gating
        width = self.widths
        axis = {"Q": self.queries, "K": self.projected_axis, "V": self.projected_axis}
        return {slot: self.linear_factory(self.d,
                                          self._gate_width() if makes == "gate" else width[makes],
                                          (axis[reads],), self.bias)
                for slot, (reads, makes) in gating.slots().items()}

    def _gate_width(self) -> Size:
        """The width of a gate: the input's, or across sequences that of the factor it multiplies."""
        if not self.gating.is_cross_sequence:
            return self.d
        return {"QgV": self.heads * self.head_dim, "QgK": self.widths["Q"]}.get(
            self.gate, self.widths["K"])

    def parts(self) -> Mapping[str, Block | Use]:
        width = self.heads * self.head_dim
        kv = self.widths["K"] + self.widths["V"]
        maps = self._maps()
        parts: dict[str, Block | Use] = {**maps, "core": self._core()}
        if self.head_ffn is not None:
            parts["partial"] = self.head_ffn
        d_out = self.d_out if is_set(self.d_out) else self.d
        parts["out"] = self.output_factory(width, d_out, (self.queries,), self.bias)
        for slot in self.adapters:
            axis = self.queries if slot in ("query", "out") else self.projected_axis
            out = d_out if slot == "out" else self.widths[slot[0].upper()]
            parts[f"{slot}_adapter"] = LowRankAdapter(
                width if slot == "out" else self.d, out, self.adapter_rank, (axis,), bias=False)
        if is_set(self.prompt_length):
            parts["prompt"] = PromptVectors(
                self.prompt_length, self.d,
                tuple(maps[slot] for slot in self.gating.key_stream_slots))
        return parts | ({"store": KeyValueCache(kv, self.keys)} if self.decoder else {})

    @property
    def copies_input(self) -> Any:
        if self.gate != "none" or self.adapters or (
                self.head_ffn is not None and self.head_ffn.gate != "none"):
            return False
        maps = self._maps()
        return functools.reduce(operator.and_,
                                (maps[slot].copies_input
                                 for slot in (["query"] if self.cross else maps)))

    def loop_nests(self) -> Sequence[LoopNest]:
        """Kept for the backward pass besides parts' outputs: raw features, gated ones, repeated and prompts' keys."""
        width = self.widths
        gate = self.gating
        axis = {"Q": self.queries, "K": self.keys, "V": self.keys}
        raw = ("QKV" if self.linear_factory == IDENTITY else "" if self.gate == "none"
               else gate.gating_role)
        kept = [LoopNest((axis[role], width[role]), "activation") for role in raw]
        kept += discarded_activations(self.d, (self.queries,), self)
        if self.gate != "none" and not gate.is_cross_sequence:
            kept.append(LoopNest((axis[gate.gated_role], self.d), "activation"))
        elif self.gate in ("QgV", "VgQ") and gate.is_cross_sequence:
            late = (self.queries, self.heads * self.head_dim) if self.gate == "QgV" else (
                self.keys, width["K"])
            kept.append(LoopNest(late, "activation"))
        if is_set(self.kv_heads):
            repeated = (self.score_heads + self.bias_heads) * self.head_dim
            kept.append(LoopNest((self.keys, repeated - width["K"] - width["V"]), "activation"))
        if is_set(self.prompt_length):
            kept.append(LoopNest((self.prompt_length, width["K"] + width["V"]), "activation"))
        return kept

    def _core(self) -> Block:
        values = self.heads * self.head_dim // self.bias_heads
        mask = DynamicMask(self.d, self.bias_heads, self.mask_distance, self.queries,
                           self.keys) if is_set(self.mask_distance) else None
        if self.expands_heads or is_set(self.clip) or self.residual_scores or mask is not None:
            name = ("cross" if self.cross else "self") if self.residual_scores else None
            sizes = (self.score_heads, self.head_dim, values)
            out = self.heads if self.expands_heads else 0
            return ExplicitAttention(*sizes, self.queries, self.keys, out, self.clip, name,
                                     self.prompt_length, mask)
        return FusedAttention(self.score_heads, self.head_dim, values, self.queries, self.keys,
                              self.prompt_length)

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None,
                memory: Tensor | None = None) -> Tensor:
        y = x if memory is None else memory
        joined = self._fused_projection(
            module,
            x) if memory is None and module.weight_cache is not None and cache is not None else None
        query = self.gating.features(functools.partial(self._map, module), "Q",
                                     x) if joined is None else joined[0]
        query = self._split(query, self.score_heads)
        if self.rotary:
            query = apply_rotary(query, cached_length(module, cache))
        key, value = self._keys_values(module, joined, y, cache)
        if self.prompt_length:
            key, value, bias = self._prepend_prompt(module, key, value, bias)
        if self.kv_heads:
            key = self._repeat_heads(key, self.score_heads)
            value = self._repeat_heads(value, self.bias_heads)
        more = (carried_scores, x) if isinstance(self._core(), ExplicitAttention) else ()
        mixed = module.core(query, key, value, bias, *more).transpose(1, 2).flatten(2)
        mixed = self.gating.gate_after_projection(
            "QgV", functools.partial(self._map, module), mixed, x)
        mixed = mixed if self.head_ffn is None else module.partial(mixed, x)
        return self._map(module, "out", mixed)

    def _map(self, m: Any, slot: str, x: Tensor) -> Tensor:
        """The map in ``slot``, and its adapter if it has one, applied to ``x``."""
        y = getattr(m, slot)(x)
        return y + getattr(m, f"{slot}_adapter")(x) if slot in self.adapters else y

    def _fused_projection(self, m: Any, x: Tensor) -> tuple[Tensor, ...] | None:
        """Query, key and value features of ``x`` by one product; None where they are more than three matrices."""
        import torch

        maps = [m.query, m.key, m.value]
        plain = self.gate == "none" and not self.adapters
        if not plain or not all(type(part.block) is Linear for part in maps):
            return None
        joined: Any = m.linear(x, "joined",
                               lambda: (torch.cat([part.weight for part in maps]),
                                        torch.cat([part.bias for part in maps]) if self.bias
                                        else None))
        return joined.split([part.block.d_out for part in maps], -1)

    def _keys_values(self, m: Any, joined: tuple[Tensor, ...] | None, y: Tensor, cache: Any) -> tuple[Any, Any]:
        """Keys and values of ``y`` and of the cache, which cross-attention fills once."""
        if cache is not None and self.cross and m in cache:
            key, value = cache[m]
            return key, value
        key, value = self.project(m, y) if joined is None else self._split_pair(*joined[1:])
        if self.rotary:
            key = apply_rotary(key, cached_length(m, cache))
        if cache is not None:
            key, value = (cache.store_source if self.cross else cache.append)(m, key, value)
        return key, value

    def project(self, m: Any, y: Tensor) -> tuple[Any, Any]:
        """Keys and values (batch, heads, positions, n) of ``y`` (batch, positions, d), without a prompt's."""
        maps = functools.partial(self._map, m)
        gating = self.gating
        key = gating.gate_after_projection("VgQ", maps, gating.features(maps, "K", y), y)
        return self._split_pair(key, gating.features(maps, "V", y))

    def _split_pair(self, key: Tensor, value: Tensor) -> tuple[Any, Any]:
        heads = self.kv_heads or self.score_heads, self.kv_heads or self.bias_heads
        return self._split(key, heads[0]), self._split(value, heads[1])

    def _prepend_prompt(self, m: Any, key: Tensor, value: Tensor, bias: Tensor | None) -> tuple[Any, Any, Any]:
        """Keys and values with the prompt's in front, which no mask hides."""
        import torch

        more = m.cached_constant("prompt", lambda: self.project(m, m.prompt()[None]))
        key, value = (torch.cat([a.expand(b.shape[0], -1, -1, -1), b], 2)
                      for a, b in zip(more, (key, value)))
        return key, value, bias if bias is None else torch.nn.functional.pad(
            bias, (self.prompt_length, 0))

    def _repeat_heads(self, x: Tensor, heads: int) -> Tensor:
        """Heads of keys or values, each repeated for the consecutive heads that it serves."""
        times = heads // self.kv_heads
        return x if times == 1 else x[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        """(batch, positions, heads · n) to (batch, heads, positions, n)."""
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)
