"""Layers: steps of parallel sub-layers, each step with a residual and a norm.

Pre-norm: x + f(norm(x)). Post-norm: norm(x + f(x)). Branch: x + norm(f(x)), as in OLMo 2. Sandwich:
x + norm_out(f(norm(x))), as in Gemma 2. If a step has parallel sub-layers, f is their sum. The
norms of a step are named after its first sub-layer (``attention_norm``, ``attention_norm_out``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from scalesearch.blocks.core import Block, LoopNest, Use, block
from scalesearch.blocks.elementwise import add_promoted, autocast_input, dropout
from scalesearch.blocks.ffn import FFN
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.multi_path import MultiPath, MultiPathConfig, PathMerge, select_path
from scalesearch.blocks.norms import NORM_CLASSES, norm_type_field

if TYPE_CHECKING:
    from torch import Tensor

NORM_POSITIONS = ("pre", "post", "branch", "sandwich")
INPUT_NORMS = ("pre", "sandwich")  # positions with a norm of the input of each step
SECOND_FFN = "ffn_again"  # a second call of the feed-forward network before it, with its weights

SublayerOrder: TypeAlias = tuple[tuple[str, ...], ...]  # words of the sub-layers of each step


@block
class Layer(Block):
    """Base class of layers: (batch, positions, d) to (batch, positions, d).

    Sub-layers have the words that are used in ``share:``.

    Attributes:
        mixer: the first mixer.
        ffn: the feed-forward network.
        norm: one of ``NORM_POSITIONS``.
        norm_kind: type of the norms.
        sublayer_order: the order of the sub-layers if it is not ``default_order``. If a word
            occurs again, it is a separate part NAME_2, except ``ffn_again``.
        multi_path: parallel paths of a part or of the whole layer. The paths of a pre-norm layer
            have a common first norm.
        extra_sublayers: words and blocks of other sub-layers.
        parallel_mixer: mixer that replaces ``mixer`` in steps with parallel sub-layers.
        separate_norms: whether parallel sub-layers have a norm each (GPT-NeoX), not one in common.
        residual_after_norm: whether residual connections of a pre-norm layer start after the norm:
            norm(x) + f(norm(x)) (Bloom).
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
    separate_norms: bool = field(default=False, kw_only=True, metadata={"plain": False})
    residual_after_norm: bool = field(default=False, kw_only=True, metadata={"plain": False})

    default_order: ClassVar[SublayerOrder]

    @property
    def sublayers(self) -> Mapping[str, tuple[str, Mixer | FFN]]:
        """The name of the (first) part and the block of each sub-layer, by word."""
        ffn = {} if self.ffn.is_absent else {"ffn": ("ffn", self.ffn)}
        return ffn | {word: (word, part) for word, part in self.extra_sublayers}

    @property
    def effective_order(self) -> SublayerOrder:
        """The order of the sub-layers."""
        return self.sublayer_order or self.default_order

    @property
    def part_names(self) -> Mapping[str, list[str]]:
        """Names of the parts of each sub-layer, by word."""
        names: dict[str, list[str]] = {slot: [] for slot in self.sublayers}
        for slot, name in (part for step in self.steps for part in step):
            if name not in names[slot]:
                names[slot].append(name)
        return names

    @cached_property
    def steps(self) -> list[list[tuple[str, str]]]:
        """Word and part name of the sub-layers of each step."""
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
        """Name of the norm of the last step."""
        return f"{self.steps[-1][0][1]}_norm{'_out' * (self.norm == 'sandwich')}"

    @property
    def branch_norms(self) -> list[str]:
        """Names of the norms of the outputs of residual branches."""
        suffix = {"branch": "_norm", "sandwich": "_norm_out"}.get(self.norm)
        return [f"{step[0][1]}{suffix}" for step in self.steps] if suffix else []

    @cached_property
    def path_names(self) -> list[str]:
        """Names of the paths of the whole layer; one empty name without parallel paths."""
        paths = self.multi_path
        if paths is None or paths.target != "layer":
            return [""]
        return list(MultiPath(None, paths.count).branches)

    def _merge(self) -> PathMerge:
        assert self.multi_path is not None
        norms = self.norm_kind if self.multi_path.norm else ""
        return PathMerge(self.mixer.d, (self.mixer.queries,), self.multi_path.count,
                         self.multi_path.merge, norms)

    def _part(self, slot: str, name: str) -> Any:
        """Return the block of a part, with parallel paths if it has them.

        Args:
            slot: word of the sub-layer.
            name: name of the part.
        """
        first, part = self.sublayers[slot]
        if self.parallel_mixer is not None and part is self.mixer and any(
                (slot, name) in step for step in self.steps if len(step) > 1):
            part = self.parallel_mixer
        part = part.second_call if name != first and isinstance(part, Mixer) else part
        return part if self.multi_path is None else self.multi_path.wrap(part, slot, self._merge())

    def parts(self) -> Mapping[str, Block | Use]:
        calls = Counter(name for step in self.steps for _, name in step)
        # The norm before a step is named after its first part; separate norms, after each part.
        norms = Counter(name for step in self.steps for name in dict.fromkeys(
            name for _, name in (step if self.separate_norms else step[:1])))
        output_norms = Counter(step[0][1] for step in self.steps if self.norm == "sandwich")
        norm = NORM_CLASSES[self.norm_kind](self.mixer.d, (self.mixer.queries,))
        count = len(self.path_names)
        parts: dict[str, Block | Use] = {}
        for slot, names in self.part_names.items():
            for name in names:
                parts[name] = Use(self._part(slot, name), calls[name])
                if name in norms and (count == 1
                                      or (self.norm == "pre" and name == self.steps[0][0][1])):
                    # all paths have the norm of the first step in common
                    parts[f"{name}_norm"] = Use(norm, 1 + (norms[name] - 1) * count)
                elif name in norms:
                    parts[f"{name}_norm"] = Use(MultiPath(norm, count), norms[name])
                if name in output_norms:
                    parts[f"{name}_norm_out"] = Use(norm, output_norms[name])
        return parts | ({"merge": Use(self._merge())} if count > 1 else {})

    def loop_nests(self) -> Sequence[LoopNest]:
        """Return corrections of the activations of parallel sub-layers.

        Their common input is stored if at least one of them does not copy it, and their sum is
        stored instead of their outputs.
        """
        d = self.mixer.d
        count = len(self.path_names)
        corrections = []
        for index, step in enumerate(self.steps):
            parts = [self._part(*part) for part in step]
            readers = parts * (1 if index else count)  # all paths of a layer have the same input
            if len(readers) > 1:
                copied = 0 if self.separate_norms else sum(
                    d * part.copies_input for part in readers) - d * reduce(
                    and_, (part.copies_input for part in readers))
                summed = count * d * (len(parts) - 1)
                size = (count if index else 1) * copied - summed
                corrections.append(LoopNest((self.mixer.queries, size), "activation"))
        return corrections

    def forward(self, module: Any, x: Tensor, token_mask: Tensor | None, bias: Tensor | None,
                carried_scores: dict[str, Any] | None = None, memory: Tensor | None = None,
                memory_bias: Tensor | None = None, cache: Any = None) -> Tensor:
        """Run the layer.

        Args:
            x: (batch, positions, d).
            token_mask: as for :meth:`~scalesearch.blocks.mixers.base.Mixer.forward`.
            bias: as for mixers.
            carried_scores: attention scores that residual attention passes to the next layer.
            memory: states of the encoder (batch, source, d_memory) for cross-attention.
            memory_bias: bias of its scores, which hides padding.
            cache: as for mixers.
        """
        context = (token_mask, bias, carried_scores, memory, memory_bias, cache)
        if len(self.path_names) > 1:
            return self._forward_paths(module, x, context)
        for step in self.steps:
            norm = getattr(module, f"{step[0][1]}_norm")
            if self.separate_norms and len(step) > 1:
                y = reduce(add_promoted, [
                    self._run_step(module, [part], getattr(module, f"{part[1]}_norm")(x), context)
                    for part in step])
            else:
                y = norm(x) if self.norm in INPUT_NORMS else x
                x = y if self.residual_after_norm else x
                y = self._run_step(module, step, y, context)
            if self.norm == "branch":
                y = norm(y)
            elif self.norm == "sandwich":
                y = getattr(module, f"{step[0][1]}_norm_out")(y)
            x = _add_residual(module, x, y)
            if self.norm == "post":
                x = norm(x)
        return x

    def _run_step(self, module: Any, step: Sequence[tuple[str, str]], x: Tensor,
                  context: tuple[Any, ...], path: str = "") -> Tensor:
        """Return the sum of the sub-layers of a step, (batch, positions, d).

        Args:
            step: words and part names of the sub-layers.
            x: their input.
            context: the arguments of :meth:`forward` after ``x``.
            path: name of the path of the layer; empty if there is only one.
        """
        token_mask, bias, scores, memory, memory_bias, cache = context
        x = autocast_input(x)
        outputs = []
        for slot, name in step:
            part = _path_module(module, name, path)
            if slot == "ffn":
                outputs.append(part(x))
            elif slot != "cross":
                outputs.append(part(x, token_mask, bias, cache, scores))
            elif cache is None or cache.groups is None:
                outputs.append(part(x, None, memory_bias, cache, scores, memory))
            else:
                grid = cache.groups.to_grid(x)
                y = part(grid, None, memory_bias, cache, scores, memory)
                outputs.append(cache.groups.from_grid(y))
        return reduce(add_promoted, outputs)

    def _forward_paths(self, module: Any, x: Tensor, context: tuple[Any, ...]) -> Tensor:
        """Run parallel paths of the whole layer, and merge them."""
        states = dict.fromkeys(self.path_names, x)
        contexts = {path: select_path(path, context) for path in states}
        first_norm = f"{self.steps[0][0][1]}_norm"
        # the paths of a pre-norm layer have a common first norm
        normalized = getattr(module, first_norm)(x) if self.norm == "pre" else x
        for index, step in enumerate(self.steps):
            for path, state in states.items():
                if self.norm == "pre" and index == 0:
                    y = self._run_step(module, step, normalized, contexts[path], path)
                    states[path] = _add_residual(module, state, y)
                    continue
                norm = _path_module(module, f"{step[0][1]}_norm", path)
                y = norm(state) if self.norm == "pre" else state
                state = _add_residual(module, state,
                                      self._run_step(module, step, y, contexts[path], path))
                states[path] = norm(state) if self.norm == "post" else state
        merged: Tensor = module.merge(x, list(states.values()))
        return merged


@block
class EncoderLayer(Layer):
    """A layer of an encoder: (batch, source, d) to (batch, source, d)."""

    mixer: Mixer

    default_order: ClassVar[SublayerOrder] = (("attention",), ("ffn",))

    @property
    def sublayers(self) -> Mapping[str, tuple[str, Mixer | FFN]]:
        mixer = {} if self.mixer.is_absent else {"attention": (self.mixer.part_name, self.mixer)}
        return {**mixer, **super().sublayers}


@block
class DecoderLayer(Layer):
    """A layer of a decoder: (batch, target, d) to (batch, target, d).

    Attributes:
        cross_attention: attention to the encoder; None in a decoder-only model.
        interleaved: whether the same feed-forward network and norm are called both after
            self-attention and after cross-attention (EdgeFormer, section 3.1).
    """

    mixer: Mixer
    cross_attention: Mixer | None = None
    interleaved: bool = False

    default_order: ClassVar[SublayerOrder] = (("self",), ("cross",), ("ffn",))
    interleaved_order: ClassVar[SublayerOrder] = (("self",), ("ffn",), ("cross",), (SECOND_FFN,))

    @property
    def sublayers(self) -> Mapping[str, tuple[str, Mixer | FFN]]:
        sublayers: dict[str, tuple[str, Mixer | FFN]] = {}
        if not self.mixer.is_absent:
            sublayers["self"] = (f"self_{self.mixer.part_name}", self.mixer)
        if self.cross_attention is not None and not self.cross_attention.is_absent:
            sublayers["cross"] = ("cross_attention", self.cross_attention)
        return {**sublayers, **super().sublayers}

    @property
    def effective_order(self) -> SublayerOrder:
        return self.sublayer_order or (self.interleaved_order if self.interleaved
                                       else self.default_order)


def _add_residual(module: Any, x: Tensor, y: Tensor) -> Tensor:
    """Return x + dropout(y)."""
    return add_promoted(x, dropout(y, module.dropout_rates.residual, module.training))


def _path_module(m: Any, name: str, path: str) -> Any:
    """Return the module ``name`` of a layer, or of one of its paths."""
    part = getattr(m, name)
    return getattr(part, path) if path and isinstance(part.block, MultiPath) else part
