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
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.norms import NORM_KINDS, norm_kind
from scalesearch.blocks.options import named

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
    """

    main: Mixer
    ffn: FFN
    norm: str
    norm_kind: str = norm_kind()
    order: Order = field(default=(), kw_only=True, metadata={"plain": ()})

    usual: ClassVar[Order]

    @property
    def blocks(self) -> Mapping[str, tuple[str, Mixer | FFN]]:
        """Word to the name of its (first) part, and its block; of what is there."""
        return {} if self.ffn.empty else {"ffn": ("ffn", self.ffn)}

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

    def parts(self) -> Mapping[str, Block | Use]:
        calls = Counter(name for step in self.steps for _, name in step)
        norms = Counter(step[0][1] for step in self.steps)
        parts: dict[str, Block | Use] = {}
        for slot, names in self.slots.items():
            for name in names:
                first = self.blocks[slot][1]
                part = first.again if name != names[0] and isinstance(first, Mixer) else first
                parts[name] = Use(part, calls[name])
                if name in norms:
                    parts[f"{name}_norm"] = Use(NORM_KINDS[self.norm_kind](self.main.d, part.over), norms[name])
        return parts

    def work(self) -> Sequence[Work]:
        """What parallel sub-layers say each, put right: an input is kept if one reads it in place, outputs as a sum."""
        d, kept = self.main.d, []
        for step in (step for step in self.steps if len(step) > 1):
            parts = [self.blocks[slot][1] for slot, _ in step]
            copied = sum(d * part.copies for part in parts) - d * reduce(and_, (part.copies for part in parts))
            kept.append(Work((*parts[0].over, copied - d * (len(parts) - 1)), "activation"))
        return kept

    def forward(self, m: Any, x: Any, present: Any, bias: Any, carried: Any = None, memory: Any = None,
                memory_bias: Any = None, cache: Any = None) -> Any:
        """``present``, ``bias`` and ``cache`` as a mixer takes them; ``memory`` of a cross-attention, and its bias.

        ``carried`` takes scores from layer to layer, where attention has residual scores.
        """
        def applied(slot: str, name: str, y: Any) -> Any:
            part = getattr(m, name)
            if slot == "ffn":
                return part(y)
            if slot != "cross":
                return part(y, present, bias, cache, carried)
            if cache is None or cache.groups is None:
                return part(y, None, memory_bias, cache, carried, memory)
            return cache.groups.rows(part(cache.groups.grid(y), None, memory_bias, cache, carried, memory))

        for step in self.steps:
            def together(y: Any, step: list[tuple[str, str]] = step) -> Any:
                return reduce(plus, (applied(slot, name, y) for slot, name in step))

            x = sublayer(m, self.norm, getattr(m, f"{step[0][1]}_norm"), x, together)
        return x


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
    cross_attention: Attention | None = None
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
