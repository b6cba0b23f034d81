"""Multi-head attention (Vaswani et al. 2017, section 3.2) and its variants.

Heads × head_dim may differ from the width of the model.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from scalesearch.blocks.core import (
    TEXT,
    Axis,
    Block,
    LinearFactory,
    LoopNest,
    Shape,
    Size,
    Use,
    block,
    bounded_axis,
    discarded_activations,
    iterate_cost_lines,
)
from scalesearch.blocks.leaves import FusedAttention, KeyValueCache, Linear
from scalesearch.blocks.maps.linear_factories import DENSE, IDENTITY, LowRankAdapter
from scalesearch.blocks.mixers.attention_extras import (
    ADAPTABLE_PARTS,
    DynamicMask,
    PartialFFN,
    PromptVectors,
    add_distance_bias,
    apply_rotary,
    hide_outside_window,
)
from scalesearch.blocks.mixers.base import AttentionScoreShape, Mixer, register_mixer
from scalesearch.blocks.mixers.gates import Gating
from scalesearch.blocks.mixers.scores import ExplicitAttention
from scalesearch.blocks.norms import RMSNorm
from scalesearch.blocks.sizes import decide, is_set, select_where

if TYPE_CHECKING:
    from torch import Tensor


@register_mixer("attention")
@block
class Attention(Mixer):
    """Multi-head attention within a sequence, or to a memory (batch, keys, d).

    Attributes:
        heads: heads of values.
        head_dim: features of a head.
        score_heads: sets of attention scores. Each set is used by ``heads / score_heads``
            consecutive value heads, unless ``expands_heads``.
        projected_axis: positions that are projected to keys and values in this pass.
        keys: positions that are attended to; more than ``projected_axis`` with a cache.
        cross: whether keys and values come from another sequence.
        expands_heads: whether the scores are expanded to one set per value head (head scaling,
            PartialFormer).
        kv_heads: heads of keys and values, used by consecutive heads (grouped-query attention,
            Ainslie et al. 2023); 0 for one per head, 1 for multi-query attention.
        clip: largest distance of relative keys (Shaw et al. 2018); 0 for none.
        residual_scores: whether the scores of the previous layer are added (RealFormer).
        gate: one of :data:`~scalesearch.blocks.mixers.gates.GATES` (Anthe).
        head_ffn: feed-forward networks inside heads (PartialFormer).
        adapters: maps with low-rank adapters (EdgeFormer).
        adapter_rank: rank of the adapters.
        prompt_length: learned vectors before keys and values (EdgeFormer); 0 for none.
        rotary: whether positions are encoded by rotation.
        mask_distance: largest distance of a learned mask on each side; 0 for no mask.
        d_out: features of the output; 0 for ``d``.
        output_factory: creates the output map; ``linear_factory`` creates the input maps.
        bias: whether the maps have biases.
        output_bias: whether the output map has a bias; None for ``bias``.
        window: a position attends to positions at a distance below this number: in a decoder,
            those before it, and in an encoder, those on both sides; 0 for all positions.
        qk_norm: RMS norm of queries and keys before the rotation: ``head`` (Qwen3), one of the
            features of a head; ``width`` (OLMo 2), one of all heads; ``none``.
        alibi: whether scores have a bias that is linear in the distance (Press et al. 2022).
        soft_cap: scores s become soft_cap · tanh(s / soft_cap) (Gemma 2); 0 for no limit.
        score_dim: scores are divided by its square root; 0 for ``head_dim``.
        alibi_scaled: whether the bias of ``alibi`` is divided by the same root (Falcon).
        memory_d: features of the memory of cross-attention; 0 for ``d``.
    """

    heads: Size
    head_dim: Size
    score_heads: Size
    projected_axis: Axis
    keys: Axis
    cross: bool = False
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
    d_out: Size = field(default=0, metadata={"plain": 0})
    output_factory: LinearFactory = field(default=DENSE, metadata={"plain": DENSE})
    bias: bool = field(default=True, metadata={"plain": True})
    output_bias: bool | None = field(default=None, metadata={"plain": None})
    window: int = field(default=0, metadata={"plain": 0})
    qk_norm: str = field(default="none", metadata={"plain": "none"})
    alibi: bool = field(default=False, metadata={"plain": False})
    soft_cap: float = field(default=0.0, metadata={"plain": 0.0})
    score_dim: Size = field(default=0, metadata={"plain": 0})
    alibi_scaled: bool = field(default=False, metadata={"plain": False})
    memory_d: Size = field(default=0, metadata={"plain": 0})

    part_name: ClassVar[str] = "attention"
    has_scores: ClassVar[bool] = True
    output_projections: ClassVar[tuple[str, ...]] = ("out", "out_adapter.up")
    adaptable_parts: ClassVar[tuple[str, ...]] = ADAPTABLE_PARTS

    @property
    def score_shape(self) -> AttentionScoreShape:
        """Shape of the scores before the softmax."""
        return AttentionScoreShape(self.bias_heads, self.head_dim, self.keys)

    @property
    def attended(self) -> Axis:
        """Axis of the positions that one position attends to."""
        if not self.window:
            return self.keys
        return bounded_axis(self.keys, self.window if self.decoder else 2 * self.window - 1)

    @property
    def second_call(self) -> Attention:
        return replace(self, mask_distance=0)

    def validate(self) -> tuple[str, str] | None:
        heads = self.heads
        sets = self.score_heads
        shared = self.kv_heads
        if decide(sets == 0):
            return "score_heads", f"{heads} value heads need at least 1 set of scores"
        if not self.expands_heads and decide(heads % sets != 0):
            return ("score_heads",
                    f"{heads} value heads are not a multiple of {sets} score heads, which only "
                    "head_scaling: mlp supports")
        if is_set(shared) and (decide(heads % shared != 0) or decide(sets % shared != 0)):
            return ("key_value_heads",
                    f"{heads} heads and {sets} score heads are not multiples of {shared}")
        if is_set(shared) and not self.expands_heads and decide(heads != sets):
            return ("key_value_heads", f"needs equal score_heads and heads, not {sets} and {heads}")
        if self.rotary and is_set(self.clip):
            return "rotary", "cannot be combined with relative_positions"
        if self.rotary and decide(self.head_dim % 2 != 0):
            return "rotary", f"needs an even head_dim, not {self.head_dim}"
        if self.window and self.residual_scores:
            return "window", "cannot be combined with residual_scores: previous"
        if self.qk_norm != "none" and is_set(self.prompt_length):
            return "qk_norm", "cannot be combined with adapt: prompt"
        # Features without a projection have the width of the model.
        key = ("projections" if self.linear_factory == IDENTITY
               else "cross_gate" if self.cross else "gate")
        names = {"Q": "queries", "K": "keys", "V": "values"}
        for role in self._raw_roles:
            if decide(self.widths[role] != self.input_widths[role]):
                return key, (f"{names[role]} have no projection, so their heads x head_dim must be "
                             f"the width {self.input_widths[role]}, not {self.widths[role]}")
        return None

    @property
    def _raw_roles(self) -> str:
        """Which of queries (Q), keys (K) and values (V) have no projection."""
        if self.linear_factory == IDENTITY:
            return "QKV"
        return "" if self.gate == "none" else self.gating.gating_role

    @functools.cached_property
    def gating(self) -> Gating:
        """The computation of the gate between queries, keys and values."""
        return Gating(self.gate, self.cross)

    @functools.cached_property
    def widths(self) -> dict[str, Size]:
        """Features of queries (Q), keys (K) and values (V) over all heads."""
        key_heads = self.kv_heads if is_set(self.kv_heads) else self.score_heads
        value_heads = self.kv_heads if is_set(self.kv_heads) else self.heads
        return {"Q": self.score_heads * self.head_dim, "K": key_heads * self.head_dim,
                "V": value_heads * self.head_dim}

    @functools.cached_property
    def input_widths(self) -> dict[str, Size]:
        """Features of the sequences that queries (Q), keys (K) and values (V) are computed from."""
        memory_d = self.memory_d if is_set(self.memory_d) else self.d
        return {"Q": self.d, "K": memory_d, "V": memory_d}

    @property
    def bias_heads(self) -> Size:
        """Number of sets of scores at the softmax."""
        return self.heads if self.expands_heads else self.score_heads

    def _maps(self) -> dict[str, Block]:
        """Return the input maps by slot."""
        axis = {"Q": self.queries, "K": self.projected_axis, "V": self.projected_axis}
        # Across sequences, a gate has the features that it multiplies.
        gate_width = self.input_widths.get(self.gating.gated_role, self.d)
        if self.gating.is_cross_sequence:
            gate_width = {"QgV": self.heads * self.head_dim, "QgK": self.widths["Q"]}.get(
                self.gate, self.widths["K"])
        widths = {**self.widths, "gate": gate_width}
        return {slot: self.linear_factory(self.input_widths[reads], widths[makes], (axis[reads],),
                                          self.bias)
                for slot, (reads, makes) in self.gating.slots().items()}

    def parts(self) -> Mapping[str, Block | Use]:
        width = self.heads * self.head_dim
        kv = self.widths["K"] + self.widths["V"]
        maps = self._maps()
        values = width // self.bias_heads
        mask = DynamicMask(self.d, self.bias_heads, self.mask_distance, self.queries,
                           self.attended) if is_set(self.mask_distance) else None
        core: Block = FusedAttention(self.score_heads, self.head_dim, values, self.queries,
                                     self.attended, self.prompt_length)
        if self.expands_heads or is_set(self.clip) or self.residual_scores or mask is not None or (
                self.soft_cap):
            name = ("cross" if self.cross else "self") if self.residual_scores else None
            core = ExplicitAttention(
                self.score_heads, self.head_dim, values, self.queries, self.attended,
                self.heads if self.expands_heads else 0, self.clip, name, self.prompt_length, mask,
                self.soft_cap)
        parts: dict[str, Block | Use] = {**maps, "core": core}
        if self.qk_norm != "none":
            for name, role, axis in (("query", "Q", self.queries),
                                     ("key", "K", self.projected_axis)):
                over: Shape = (axis,)
                features = self.widths[role]
                if self.qk_norm == "head":
                    over = (axis, features // self.head_dim)
                    features = self.head_dim
                parts[f"{name}_norm"] = RMSNorm(features, over)
        if self.head_ffn is not None:
            parts["partial"] = self.head_ffn
        d_out = self.d_out if is_set(self.d_out) else self.d
        output_bias = self.bias if self.output_bias is None else self.output_bias
        parts["out"] = self.output_factory(width, d_out, (self.queries,), output_bias)
        for slot in self.adapters:
            axis = self.queries if slot in ("query", "out") else self.projected_axis
            out = d_out if slot == "out" else self.widths[slot[0].upper()]
            parts[f"{slot}_adapter"] = LowRankAdapter(
                width if slot == "out" else self.d, out, self.adapter_rank, (axis,), bias=False)
        if is_set(self.prompt_length):
            parts["prompt"] = PromptVectors(
                self.prompt_length, self.d,
                tuple(maps[slot] for slot in self.gating.key_stream_slots))
        cached = bounded_axis(self.keys, self.window - 1) if self.window else self.keys
        return parts | ({"store": KeyValueCache(kv, cached)} if self.decoder else {})

    @property
    def copies_input(self) -> Any:
        if self.gate != "none" or self.adapters or (
                self.head_ffn is not None and self.head_ffn.gate != "none"):
            return False
        maps = self._maps()
        copies = functools.reduce(operator.and_,
                                  (maps[slot].copies_input
                                   for slot in (["query"] if self.cross else maps)))
        if self.linear_factory != IDENTITY or self.cross or self.qk_norm != "none":
            return copies
        return select_where(self._is_view("K") | self._is_view("V"), False, copies)

    def _is_view(self, role: str) -> Any:
        """Whether keys (K) or values (V) without a projection are the input itself, not a copy.

        This applies to a single head, which needs no other order of the features.
        """
        if role in ("Q", self.gating.gated_role) or is_set(self.prompt_length):
            return False
        if role == "K" and (self.rotary or self.qk_norm != "none"
                            or self.gating.is_cross_sequence):
            return False
        return (self.score_heads if role == "K" else self.bias_heads) == 1

    def loop_nests(self) -> Sequence[LoopNest]:
        """Return the activations that are stored in addition to the outputs of the parts.

        These are features without a projection, gated features, cosines and sines of rotary
        positions, repeated keys and values, and keys and values of the prompt.
        """
        width = self.widths
        gate = self.gating
        axis = {"Q": self.queries, "K": self.keys, "V": self.keys}
        nests = [LoopNest((axis[role], select_where(self._is_view(role), 0, width[role])),
                          "activation") for role in self._raw_roles]
        nests += discarded_activations(self.d, (self.queries,), self)
        if self.linear_factory == IDENTITY and self.qk_norm != "none":
            nests.append(LoopNest((self.queries, -self.d), "activation"))  # both norms read x
        if self.head_ffn is None and "out" not in self.adapters:
            nests += discarded_activations(self.heads * self.head_dim, (self.queries,),
                                           self.parts()["out"])
        if self.gate != "none" and not gate.is_cross_sequence:
            nests.append(LoopNest((axis[gate.gated_role], self.input_widths[gate.gated_role]),
                                  "activation"))
        elif self.gate == "QgV" and gate.is_cross_sequence:
            nests.append(LoopNest((self.queries, self.heads * self.head_dim), "activation"))
        elif self.gate == "VgQ" and gate.is_cross_sequence:
            nests.append(LoopNest((self.keys, width["K"]), "activation"))
        if self.rotary:
            nests += [LoopNest((positions, self.head_dim), "activation_once")
                      for positions in (self.queries, self.keys)]
        projected = width["K"] + width["V"]
        attended = projected
        if is_set(self.kv_heads):
            attended = (self.score_heads + self.bias_heads) * self.head_dim
            nests.append(LoopNest((self.keys, attended - projected), "activation"))
        if is_set(self.prompt_length):
            # per text when they are joined with its keys and values, and once for the projection
            nests.append(LoopNest((TEXT, self.prompt_length, attended), "activation"))
            nests += [LoopNest((self.prompt_length, numbers), "activation_once")
                      for numbers in self._saved_prompt_features()]
        return nests

    def _saved_prompt_features(self) -> list[Size]:
        """Numbers that the projection of one vector of the prompt stores.

        The results of the maps are not stored: they are copied when keys and values are joined.
        """
        if self.linear_factory == IDENTITY:
            return []
        maps = self._maps()
        slots = self.gating.key_stream_slots
        saved = [math.prod(size for size in nest.loops if not isinstance(size, str))
                 for slot in slots for line in iterate_cost_lines(maps[slot])
                 for nest in line.loop_nests
                 if nest.operation == "activation"
                 and any(isinstance(size, str) for size in nest.loops)]
        widths = {"query": self.d, **{slot: self.widths[makes]
                                      for slot, (_, makes) in self.gating.slots().items()
                                      if makes != "gate"}}
        saved += [-widths[slot] for slot in slots]
        if "query" in slots:  # the gate, and the gated vector
            saved += [self.d, select_where(maps["value"].copies_input, 0, self.d)]
        return saved

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                cache: Any = None, carried_scores: dict[str, Any] | None = None,
                memory: Tensor | None = None) -> Tensor:
        y = x if memory is None else memory  # (batch, positions, d), projected to keys and values
        projection = functools.partial(self._map, module)
        joined = None
        if memory is None and module.weight_cache is not None and cache is not None:
            joined = self._fused_projection(module, x)
        query = self.gating.features(projection, "Q", x) if joined is None else joined[0]
        # (batch, score_heads, queries, head_dim)
        query = self._normalized_heads(module, "query", query, self.score_heads)
        if self.rotary:
            query = apply_rotary(query, 0 if cache is None else cache.cached_length(module))
        if cache is not None and self.cross and module in cache:  # after the first decoding step
            key, value = cache[module]
        else:
            key, value = (self.project(module, y) if joined is None
                          else self._split_pair(module, *joined[1:]))
            if self.rotary:
                key = apply_rotary(key, 0 if cache is None else cache.cached_length(module))
            if cache is not None:
                if self.cross:
                    key, value = cache.store_source(module, key, value)
                else:
                    limit = self.window - 1 if self.window else None
                    key, value = cache.append(module, key, value, limit=limit)
        if self.window:
            bias = None if bias is None else bias[..., bias.shape[-1] - key.shape[2] :]
            if cache is None or x.shape[1] > 1 or not cache.drops_keys:
                bias = hide_outside_window(bias, query, key.shape[2], self.window)
        if self.score_dim:
            query = query * (self.head_dim / self.score_dim) ** 0.5
        if self.alibi:
            factor = (self.score_dim or self.head_dim) ** -0.5 if self.alibi_scaled else 1.0
            bias = add_distance_bias(bias, query, key.shape[2], self.bias_heads, factor)
        if self.prompt_length:
            key, value, bias = self._prepend_prompt(module, key, value, bias)
        if self.kv_heads:
            key = self._repeat_heads(key, self.score_heads)
            value = self._repeat_heads(value, self.bias_heads)
        is_explicit = isinstance(module.core.block, ExplicitAttention)
        context = (carried_scores, x) if is_explicit else ()
        mixed = module.core(query, key, value, bias, *context)  # (batch, heads, queries, n)
        mixed = mixed.transpose(1, 2).flatten(2)  # (batch, queries, heads · head_dim)
        mixed = self.gating.gate_after_projection("QgV", projection, mixed, x)
        mixed = mixed if self.head_ffn is None else module.partial(mixed, x)
        return self._map(module, "out", mixed)

    def _map(self, m: Any, slot: str, x: Tensor) -> Tensor:
        """Apply the map in ``slot``, and its adapter if it has one, to ``x``."""
        y = getattr(m, slot)(x)
        return y + getattr(m, f"{slot}_adapter")(x) if slot in self.adapters else y

    def _fused_projection(self, m: Any, x: Tensor) -> tuple[Tensor, ...] | None:
        """Return query, key and value features of ``x`` from one matrix product.

        None if they are not computed by three plain matrices.
        """
        import torch

        maps = [m.query, m.key, m.value]
        if self.gate != "none" or self.adapters or any(type(part.block) is not Linear
                                                       for part in maps):
            return None

        def concatenated() -> tuple[Tensor, Tensor | None]:
            bias = torch.cat([part.bias for part in maps]) if self.bias else None
            return torch.cat([part.weight for part in maps]), bias

        joined: Any = m.linear(x, "joined", concatenated)
        return joined.split([part.block.d_out for part in maps], -1)

    def project(self, m: Any, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values (batch, heads, positions, n) of ``y``.

        ``y`` is (batch, positions, d). They do not include those of the prompt.
        """
        projection = functools.partial(self._map, m)
        key = self.gating.features(projection, "K", y)
        key = self.gating.gate_after_projection("VgQ", projection, key, y)
        return self._split_pair(m, key, self.gating.features(projection, "V", y))

    def _split_pair(self, m: Any, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        key = self._normalized_heads(m, "key", key, self.kv_heads or self.score_heads)
        return key, value.unflatten(-1, (self.kv_heads or self.bias_heads, -1)).transpose(1, 2)

    def _normalized_heads(self, m: Any, name: str, x: Tensor, heads: int) -> Tensor:
        """Return queries or keys by head, with their norm, (batch, heads, positions, head_dim)."""
        x = getattr(m, f"{name}_norm")(x) if self.qk_norm == "width" else x
        x = x.unflatten(-1, (heads, -1))  # the norm is before the transposition: it is contiguous
        return (getattr(m, f"{name}_norm")(x) if self.qk_norm == "head" else x).transpose(1, 2)

    def _prepend_prompt(self, m: Any, key: Tensor, value: Tensor,
                        bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Prepend keys and values of the prompt, which no mask hides."""
        import torch
        from torch.nn.functional import pad

        prompt_key, prompt_value = m.cached_constant(
            "prompt", lambda: self.project(m, m.prompt()[None]))
        batch = key.shape[0]
        key = torch.cat([prompt_key.expand(batch, -1, -1, -1), key], 2)
        value = torch.cat([prompt_value.expand(batch, -1, -1, -1), value], 2)
        return key, value, None if bias is None else pad(bias, (self.prompt_length, 0))

    def _repeat_heads(self, x: Tensor, heads: int) -> Tensor:
        """Repeat each head of keys or values for the consecutive heads that use it."""
        times = heads // self.kv_heads
        return x if times == 1 else x[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2)
