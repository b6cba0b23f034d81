"""Layers: sub-layers in turn or in parallel, each step of them with a residual and a norm.

Pre-norm: x + f(norm(x)). Post-norm: norm(x + f(x)). In parallel: f is the sum of several. A step's
norm is named after its first sub-layer (``attention_norm``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from scalesearch.blocks.core import Block, LoopNest, Use, block
from scalesearch.blocks.elementwise import add_promoted, autocast_input, dropout
from scalesearch.blocks.ffn.base import FFN
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.multi_path import MultiPath, MultiPathConfig, PathMerge, select_path
from scalesearch.blocks.norms import NORM_CLASSES, norm_type_field

if TYPE_CHECKING:
    from torch import Tensor

NORM_POSITIONS = ("pre", "post")
SECOND_FFN = "ffn_again"  # the feed-forward network before it once more, with its weights

SublayerOrder: TypeAlias = tuple[tuple[str, ...], ...]  # steps, each of the words of its sub-layers


def apply_residual(m: Any, norm: str, normalize: Any, x: Tensor, f: Callable[[Any], Any]) -> Tensor:
    """One residual sub-layer; ``norm`` is ``pre`` or ``post``."""
    if norm == "pre":
        return add_promoted(x,
                            dropout(f(autocast_input(normalize(x))), m.dropout_rates.residual, m.training))
    return normalize(add_promoted(x, dropout(f(autocast_input(x)), m.dropout_rates.residual, m.training)))


@block
class Layer(Block):
    """Sub-layers in some order: (batch, positions, d) to the same.

    Their words are those of ``share:``.

    ``sublayer_order``: where it is not the ``default_order`` one. A word again is a part of its
    own, NAME_2, but for ``ffn_again``. ``multi_path``: several of a part in its place, or of the
    whole layer: these have one first norm if it is pre-norm. ``extra_sublayers``: further
    sub-layers by their words. ``parallel_mixer``: what stands for ``mixer`` in steps of several
    sub-layers.
    """

    mixer: Mixer
    ffn: FFN
    norm: str
    norm_kind: str = norm_type_field()
    sublayer_order: SublayerOrder = field(default=(), kw_only=True, metadata={"plain": ()})
    multi_path: MultiPathConfig | None = field(default=None, kw_only=True, metadata={"plain": None})
    extra_sublayers: tuple[tuple[str, Mixer], ...] = field(
        default=(), kw_only=True, metadata={"plain": ()})
    parallel_mixer: Mixer | None = field(default=None, kw_only=True, metadata={"plain": None})

    default_order: ClassVar[SublayerOrder]

    @property
    def sublayers(self) -> Mapping[str, tuple[str, Mixer | FFN]]:
        """Word to the name of its (first) part, and its block; of what is there."""
        ffn = {} if self.ffn.is_absent else {"ffn": ("ffn", self.ffn)}
        return ffn | {word: (word, part) for word, part in self.extra_sublayers}

    @property
    def effective_order(self) -> SublayerOrder:
        """The order, said or not."""
        return self.sublayer_order or self.default_order

    @property
    def part_names(self) -> Mapping[str, list[str]]:
        """Name in ``share:`` to names of parts."""
        parts = [part for step in self.steps for part in step]
        return {slot: list(dict.fromkeys(name for of, name in parts if of == slot))
                for slot in self.sublayers}

    @cached_property
    def steps(self) -> list[list[tuple[str, str]]]:
        """The words and the names of the sub-layers, step by step."""
        steps: list[list[tuple[str, str]]] = []
        counts: Counter[str] = Counter()
        for words in self.effective_order:
            step = []
            for word in words:
                slot = "ffn" if word == SECOND_FFN else word
                counts[slot] += word == slot
                if slot in self.sublayers:
                    name = self.sublayers[slot][0]
                    number = counts[slot]
                    step.append((slot, name if number == 1 else f"{name}_{number}"))
            steps += [step] if step else []
        return steps

    @property
    def last_norm(self) -> str:
        """The name of the norm of the last step."""
        return f"{self.steps[-1][0][1]}_norm"

    @property
    def path_names(self) -> list[str]:
        """The names of the paths of the whole layer, or one that is empty."""
        paths = self.multi_path
        return [""] if paths is None or paths.target != "layer" else list(
            MultiPath(None, paths.count).branches)

    @cached_property
    def _parallel_parts(self) -> set[str]:
        """The names of parts that stand in parallel with others."""
        return {name for step in self.steps if len(step) > 1 for _, name in step}

    def _merge(self) -> PathMerge:
        assert self.multi_path is not None
        norms = self.norm_kind if self.multi_path.norm else ""
        return PathMerge(self.mixer.d, (self.mixer.queries,), self.multi_path.count,
                         self.multi_path.merge, norms)

    def _part(self, slot: str, name: str) -> Any:
        """The block of a part: what stands under the word ``slot``, or several paths of it."""
        first, part = self.sublayers[slot]
        if self.parallel_mixer is not None and part is self.mixer and name in self._parallel_parts:
            part = self.parallel_mixer
        part = part.second_call if name != first and isinstance(part, Mixer) else part
        return part if self.multi_path is None else self.multi_path.wrap(part, slot, self._merge())

    def parts(self) -> Mapping[str, Block | Use]:
        calls = Counter(name for step in self.steps for _, name in step)
        norms = Counter(step[0][1] for step in self.steps)
        norm = NORM_CLASSES[self.norm_kind](self.mixer.d, (self.mixer.queries,))
        count = len(self.path_names)
        parts: dict[str, Block | Use] = {}
        for slot, names in self.part_names.items():
            for name in names:
                parts[name] = Use(self._part(slot, name), calls[name])
                if name in norms and (count == 1
                                      or (self.norm == "pre" and name == self.steps[0][0][1])):
                    # the first step's is of all paths
                    parts[f"{name}_norm"] = Use(norm, 1 + (norms[name] - 1) * count)
                elif name in norms:
                    parts[f"{name}_norm"] = Use(MultiPath(norm, count), norms[name])
        return parts | ({"merge": Use(self._merge())} if count > 1 else {})

    def loop_nests(self) -> Sequence[LoopNest]:
        """What sub-layers with one input say each, put right: it is kept if one reads it in place, outputs as a sum."""
        d = self.mixer.d
        count = len(self.path_names)
        kept = []
        for number, step in enumerate(self.steps):
            parts = [self._part(*part) for part in step]
            readers = parts * (1 if number else count)  # paths of a layer begin with one input
            if len(readers) > 1:
                copied = sum(d * part.copies_input for part in readers) - d * reduce(
                    and_, (part.copies_input for part in readers))
                summed = count * d * (len(parts) - 1)
                kept.append(LoopNest((self.mixer.queries,
                                      (count if number else 1) * copied - summed), "activation"))
        return kept

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None, carried_scores: dict[str, Any] | None = None,
                memory: Tensor | None = None, memory_bias: Tensor | None = None, cache: Any = None) -> Tensor:
        """``token_mask``, ``bias`` and ``cache`` as a mixer takes them; ``memory`` of a cross-attention, and its bias.

        ``carried_scores`` takes scores from layer to layer, where attention has residual scores.
        """
        def applied(unit: str, slot: str, name: str, y: Any) -> Any:
            part = _path_module(module, name, unit)
            scores = select_path(unit, (carried_scores,))[0]
            if slot == "ffn":
                return part(y)
            if slot != "cross":
                return part(y, token_mask, bias, cache, scores)
            if cache is None or cache.groups is None:
                return part(y, None, memory_bias, cache, scores, memory)
            return cache.groups.from_grid(part(cache.groups.to_grid(y), None, memory_bias, cache, scores,
                                          memory))

        states = dict.fromkeys(self.path_names, x)
        for number, step in enumerate(self.steps):
            name = f"{step[0][1]}_norm"
            # once for all paths
            first = getattr(module, name)(x) if self.norm == "pre" and number == 0 else None
            for unit, state in states.items():
                def together(y: Any, unit: str = unit, step: list[tuple[str, str]] = step) -> Any:
                    return reduce(add_promoted, (applied(unit, *part, y) for part in step))

                normalize = _path_module(module, name,
                                         unit) if first is None else lambda _, first=first: first
                states[unit] = apply_residual(module, self.norm, normalize, state, together)
        return module.merge(x, list(states.values())) if len(states) > 1 else states[""]


@block
class EncoderLayer(Layer):
    """A mixer and feed-forward networks: (batch, source, d) to the same."""

    mixer: Mixer

    default_order: ClassVar[SublayerOrder] = (("attention",), ("ffn",))

    @property
    def sublayers(self) -> Mapping[str, tuple[str, Mixer | FFN]]:
        return {"attention": (self.mixer.part_name, self.mixer), **super().sublayers}


@block
class DecoderLayer(Layer):
    """A causal mixer, cross-attention unless decoder-only, feed-forward; (batch, target, d) to the same.

    ``interleaved`` calls the one feed-forward network, and its norm, after each of the two
    (EdgeFormer, section 3.1).
    """

    mixer: Mixer
    cross_attention: Mixer | None = None
    interleaved: bool = False

    default_order: ClassVar[SublayerOrder] = (("self",), ("cross",), ("ffn",))
    # of interleaved ones
    interleaved_order: ClassVar[SublayerOrder] = (("self",), ("ffn",), ("cross",), (SECOND_FFN,))

    @property
    def sublayers(self) -> Mapping[str, tuple[str, Mixer | FFN]]:
        cross = {} if self.cross_attention is None else {
            "cross": ("cross_attention", self.cross_attention)}
        return {"self": (f"self_{self.mixer.part_name}", self.mixer), **cross, **super().sublayers}

    @property
    def effective_order(self) -> SublayerOrder:
        return self.sublayer_order or (self.interleaved_order if self.interleaved
                                       else self.default_order)


def _path_module(m: Any, name: str, unit: str) -> Any:
    """The module ``name`` of a layer, or of one of its paths."""
    part = getattr(m, name)
    return getattr(part, unit) if unit and isinstance(part.block, MultiPath) else part
