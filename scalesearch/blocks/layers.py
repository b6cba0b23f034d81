"""Layers: sub-layers in turn or in parallel, each step of them with a residual and a norm.

Pre-norm: x + f(norm(x)). Post-norm: norm(x + f(x)). In parallel: f is the sum of several. A step's norm is named after
its first sub-layer (``attention_norm``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, reduce
from operator import and_
from typing import Any, ClassVar, TypeAlias

from scalesearch.blocks.core import Block, Use, Work, block
from scalesearch.blocks.elementwise import dropout, lowered, plus
from scalesearch.blocks.ffn.base import FFN
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.norms import NORM_KINDS, norm_kind
from scalesearch.blocks.options import named
from scalesearch.blocks.paths import Merge, Paths, Several, of_path

NORMS = ("pre", "post")
AGAIN = "ffn_again"  # the feed-forward network before it once more, with its weights

Order: TypeAlias = tuple[tuple[str, ...], ...]  # steps, each of the words of its sub-layers


def sublayer(m: Any, norm: str, normalise: Any, x: Any, f: Callable[[Any], Any]) -> Any:
    """One residual sub-layer; ``norm`` is ``pre`` or ``post``."""
    if norm == "pre":
        return plus(x, dropout(f(lowered(normalise(x))), m.rates.residual, m.training))
    return normalise(plus(x, dropout(f(lowered(x)), m.rates.residual, m.training)))


@block
class Layer(Block):
    """Sub-layers in some order: (batch, positions, d) to the same. Their words are those of ``share:``.

    ``order``: where it is not the ``usual`` one. A word again is a part of its own, NAME_2, but for ``ffn_again``.
    ``paths``: several of a part in its place, or of the whole layer: these have one first norm if it is pre-norm.
    ``more``: further sub-layers by their words. ``parallel``: what stands for ``main`` in steps of several sub-layers.
    """

    main: Mixer
    ffn: FFN
    norm: str
    norm_kind: str = norm_kind()
    order: Order = field(default=(), kw_only=True, metadata={"plain": ()})
    paths: Paths | None = field(default=None, kw_only=True, metadata={"plain": None})
    more: tuple[tuple[str, Mixer], ...] = field(default=(), kw_only=True, metadata={"plain": ()})
    parallel: Mixer | None = field(default=None, kw_only=True, metadata={"plain": None})

    usual: ClassVar[Order]

    @property
    def blocks(self) -> Mapping[str, tuple[str, Mixer | FFN]]:
        """Word to the name of its (first) part, and its block; of what is there."""
        ffn = {} if self.ffn.empty else {"ffn": ("ffn", self.ffn)}
        return ffn | {word: (word, part) for word, part in self.more}

    @property
    def ordered(self) -> Order:
        """The order, said or not."""
        return self.order or self.usual

    @property
    def slots(self) -> Mapping[str, list[str]]:
        """Name in ``share:`` to names of parts."""
        parts = [part for step in self.steps for part in step]
        return {slot: list(dict.fromkeys(name for of, name in parts if of == slot)) for slot in self.blocks}

    @cached_property
    def steps(self) -> list[list[tuple[str, str]]]:
        """The words and the names of the sub-layers, step by step."""
        steps: list[list[tuple[str, str]]] = []
        counts: Counter[str] = Counter()
        for words in self.ordered:
            step = []
            for word in words:
                slot = "ffn" if word == AGAIN else word
                counts[slot] += word == slot
                if slot in self.blocks:
                    name, number = self.blocks[slot][0], counts[slot]
                    step.append((slot, name if number == 1 else f"{name}_{number}"))
            steps += [step] if step else []
        return steps

    @property
    def last_norm(self) -> str:
        """The name of the norm of the last step."""
        return f"{self.steps[-1][0][1]}_norm"

    @property
    def units(self) -> list[str]:
        """The names of the paths of the whole layer, or one that is empty."""
        paths = self.paths
        return [""] if paths is None or paths.of != "layer" else list(Several(None, paths.count).added)

    @cached_property
    def _together(self) -> set[str]:
        """The names of parts that stand in parallel with others."""
        return {name for step in self.steps if len(step) > 1 for _, name in step}

    def _merge(self) -> Merge:
        assert self.paths is not None
        norms = self.norm_kind if self.paths.norm else ""
        return Merge(self.main.d, (self.main.queries,), self.paths.count, self.paths.merge, norms)

    def _part(self, slot: str, name: str) -> Any:
        """The block of a part: what stands under the word ``slot``, or several paths of it."""
        first, part = self.blocks[slot]
        if self.parallel is not None and part is self.main and name in self._together:
            part = self.parallel
        part = part.again if name != first and isinstance(part, Mixer) else part
        return part if self.paths is None else self.paths.wrapped(part, slot, self._merge())

    def parts(self) -> Mapping[str, Block | Use]:
        calls = Counter(name for step in self.steps for _, name in step)
        norms = Counter(step[0][1] for step in self.steps)
        norm, count = NORM_KINDS[self.norm_kind](self.main.d, (self.main.queries,)), len(self.units)
        parts: dict[str, Block | Use] = {}
        for slot, names in self.slots.items():
            for name in names:
                parts[name] = Use(self._part(slot, name), calls[name])
                if name in norms and (count == 1 or (self.norm == "pre" and name == self.steps[0][0][1])):
                    parts[f"{name}_norm"] = Use(norm, 1 + (norms[name] - 1) * count)  # the first step's is of all paths
                elif name in norms:
                    parts[f"{name}_norm"] = Use(Several(norm, count), norms[name])
        return parts | ({"merge": Use(self._merge())} if count > 1 else {})

    def work(self) -> Sequence[Work]:
        """What sub-layers with one input say each, put right: it is kept if one reads it in place, outputs as a sum."""
        d, count, kept = self.main.d, len(self.units), []
        for number, step in enumerate(self.steps):
            parts = [self._part(*part) for part in step]
            readers = parts * (1 if number else count)  # paths of a layer begin with one input
            if len(readers) > 1:
                copied = sum(d * part.copies for part in readers) - d * reduce(and_, (part.copies for part in readers))
                summed = count * d * (len(parts) - 1)
                kept.append(Work((self.main.queries, (count if number else 1) * copied - summed), "activation"))
        return kept

    def forward(self, m: Any, x: Any, present: Any, bias: Any, carried: Any = None, memory: Any = None,
                memory_bias: Any = None, cache: Any = None) -> Any:
        """``present``, ``bias`` and ``cache`` as a mixer takes them; ``memory`` of a cross-attention, and its bias.

        ``carried`` takes scores from layer to layer, where attention has residual scores.
        """
        def applied(unit: str, slot: str, name: str, y: Any) -> Any:
            part, scores = _of(m, name, unit), of_path(unit, (carried,))[0]
            if slot == "ffn":
                return part(y)
            if slot != "cross":
                return part(y, present, bias, cache, scores)
            if cache is None or cache.groups is None:
                return part(y, None, memory_bias, cache, scores, memory)
            return cache.groups.rows(part(cache.groups.grid(y), None, memory_bias, cache, scores, memory))

        states = dict.fromkeys(self.units, x)
        for number, step in enumerate(self.steps):
            name = f"{step[0][1]}_norm"
            first = getattr(m, name)(x) if self.norm == "pre" and number == 0 else None  # once for all paths
            for unit, state in states.items():
                def together(y: Any, unit: str = unit, step: list[tuple[str, str]] = step) -> Any:
                    return reduce(plus, (applied(unit, *part, y) for part in step))

                normalise = _of(m, name, unit) if first is None else lambda _, first=first: first
                states[unit] = sublayer(m, self.norm, normalise, state, together)
        return m.merge(x, list(states.values())) if len(states) > 1 else states[""]


@block
class EncoderLayer(Layer):
    """A mixer and feed-forward networks: (batch, source, d) to the same."""

    main: Mixer = named("attention")

    usual: ClassVar[Order] = (("attention",), ("ffn",))

    @property
    def blocks(self) -> Mapping[str, tuple[str, Mixer | FFN]]:
        return {"attention": (self.main.slot, self.main), **super().blocks}


@block
class DecoderLayer(Layer):
    """A causal mixer, cross-attention unless decoder-only, feed-forward; (batch, target, d) to the same.

    ``interleaved`` calls the one feed-forward network, and its norm, after each of the two (EdgeFormer, section 3.1).
    """

    main: Mixer = named("self_attention")
    cross_attention: Mixer | None = None
    interleaved: bool = False

    usual: ClassVar[Order] = (("self",), ("cross",), ("ffn",))
    woven: ClassVar[Order] = (("self",), ("ffn",), ("cross",), (AGAIN,))  # of interleaved ones

    @property
    def blocks(self) -> Mapping[str, tuple[str, Mixer | FFN]]:
        cross = {} if self.cross_attention is None else {"cross": ("cross_attention", self.cross_attention)}
        return {"self": (f"self_{self.main.slot}", self.main), **cross, **super().blocks}

    @property
    def ordered(self) -> Order:
        return self.order or (self.woven if self.interleaved else self.usual)


def _of(m: Any, name: str, unit: str) -> Any:
    """The module ``name`` of a layer, or of one of its paths."""
    part = getattr(m, name)
    return getattr(part, unit) if unit and isinstance(part.block, Several) else part
