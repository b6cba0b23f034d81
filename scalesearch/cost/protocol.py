"""Cost protocols: the lengths, passes and types of work behind a cost.

A protocol is a list of passes and a weight per type of work. A pass gives each axis (source,
target, keys …) its length. A cost breakdown only needs the sum over all passes of a product of
axes. A protocol is therefore a function from monomials to integers, :meth:`Protocol.extent`.
"""

from __future__ import annotations

import difflib
import math
import os.path
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from scalesearch.blocks.core import (
    CROSS_MEMORY,
    QUERY_AXES,
    SEQ,
    SEQ_KEYS,
    SEQ_STEP,
    SRC,
    SRC_KEYS,
    TEXT,
    TGT,
    TGT_KEYS,
    TGT_STEP,
    VOCAB,
    Axis,
    Shape,
    Size,
)
from scalesearch.blocks.sizes import require_single_value
from scalesearch.cost.latency_model import load_latency_model
from scalesearch.cost.training import PASSES_PER_PRODUCT, TrainingRun
from scalesearch.errors import UserError, option
from scalesearch.lowering import MAX_SOURCE_TOKENS
from scalesearch.spaces.schema.cost_names import (
    ARTIFACT_FORMATS,
    CACHE_TYPES,
    DEFAULT_ARTIFACT_FORMATS,
    OPTIMIZERS,
    OWN_VOCABULARY,
    TRAINING_SIZES,
)

Pass = Mapping[Axis, int]  # missing axes are 0: that part of the model does not run

# Work that counts as multiply-accumulates by default.
DEFAULT_WORK_WEIGHTS = {"mac": 1, "mix": 1}


@dataclass(frozen=True)
class Protocol:
    """A named convention with lengths.

    Attributes:
        name: key in ``PROTOCOLS``.
        source, target: lengths in tokens.
        vocab: size of the vocabulary, or ``own`` if each candidate has its own. Blocks then have
            a number in place of the vocabulary axis. For a population, one size per candidate.
        passes: lengths of all axes in each pass.
        work_weights: type of work to its weight in MACs; other types are not counted.
        has_prompt: whether a decoder-only model reads the source before the target. Otherwise, its
            context is only the target: ``length`` tokens.
        cache: type of the numbers in the key-value cache.
        lengths_by_vocab: vocabulary size to (source, target), if the lengths depend on it. Costs
            then need the protocol of :meth:`for_candidates`.
        artifact: format and quantization of ``artifact.bytes``; None: this cost is missing.
        latency_model_path: file with the model of ``latency.predicted``; None: this cost is
            missing.
        training: recipe of ``macs.update``, ``macs.run``, ``memory.optimizer`` and
            ``memory.training``; costs whose settings are None are missing.
        dense_windows: whether attention with a window counts all keys in a pass of several
            positions, as a product with a mask computes them. In a decoding step, the cache holds
            only the keys in the window.
        max_source_length: source tokens that the exported model must support, if it has a table
            of positions (CTranslate2).
        shortlist: tokens whose logits a decoding step computes, if the output is a matrix; None:
            all tokens.
    """

    name: str
    source: int
    target: int
    vocab: Size | str
    passes: tuple[Pass, ...] = field(repr=False)
    work_weights: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_WORK_WEIGHTS),
                                            repr=False)
    has_prompt: bool = True
    cache: str = "float32"
    lengths_by_vocab: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    artifact: str | None = None
    latency_model_path: str | None = None
    max_source_length: int = MAX_SOURCE_TOKENS
    training: TrainingRun = field(default_factory=TrainingRun, repr=False)
    dense_windows: bool = False
    shortlist: int | None = None

    @cached_property
    def _extents(self) -> dict[tuple[Axis, ...], int]:
        return {}

    def extent(self, axes: tuple[Axis, ...]) -> int:
        """Sum over the passes of the product of ``axes``, which are sorted.

        An empty product is 1.
        """
        if axes not in self._extents:
            assert not self.lengths_by_vocab, "use the protocol of for_candidates"
            vocab = {VOCAB: self.vocab_size} if VOCAB in axes else {}
            passes = ({**vocab, **lengths} for lengths in self.passes)
            self._extents[axes] = sum(math.prod(self._length(lengths, axis) for axis in axes)
                                      for lengths in passes)
        return self._extents[axes]

    def _length(self, lengths: Mapping[Axis, int], axis: Axis) -> int:
        """Length of an axis in a pass; of a bounded axis, at most its limit."""
        name, _, limit = axis.partition("<=")
        length = lengths.get(name, 0)
        is_step = lengths.get(QUERY_AXES.get(name, name), 0) == 1
        return min(length, int(limit)) if limit and (is_step or not self.dense_windows) else length

    @property
    def length(self) -> int | None:
        """Tokens of the source, of the target and of the context of a decoder-only model.

        None if source and target are set instead.
        """
        return None if self.has_prompt else self.target

    @property
    def vocab_size(self) -> Size:
        """Size of the vocabulary axis.

        Raises:
            UserError: each candidate has its own vocabulary.
        """
        if isinstance(self.vocab, str):
            raise UserError("the space has a vocabulary parameter, but the architecture does not "
                            "set it",
                            help="add --set vocab=8k, or in a study file `set: {vocab: 8k}`",
                            code="vocab-missing")
        return self.vocab

    @property
    def shared_vocab(self) -> Size | None:
        """Size of the vocabulary axis; None if each candidate has its own vocabulary."""
        return self.vocab if isinstance(self.vocab, int) else None

    def with_vocab(self, vocab: int | None) -> Protocol:
        """This protocol for an architecture with the vocabulary size ``vocab``.

        Args:
            vocab: None if the architecture has no vocabulary of its own.

        Raises:
            UserError: neither the architecture nor the protocol has a vocabulary.
        """
        size = self.vocab_size if vocab is None else vocab
        source, target = self.lengths_by_vocab[size] if self.lengths_by_vocab else (
            self.source, self.target)
        return self.with_lengths(source, target, size, self.length)

    def with_lengths(self, source: int, target: int, vocab: Size | str,
                     length: int | None = None) -> Protocol:
        """This protocol with other lengths and vocabulary."""
        protocol = find_protocol(self.name, source, target, vocab, length)
        return replace(protocol, work_weights=self.work_weights, artifact=self.artifact,
                       latency_model_path=self.latency_model_path, training=self.training,
                       max_source_length=self.max_source_length, cache=self.cache,
                       shortlist=self.shortlist)

    def for_candidates(self, values: Mapping[str, Any]) -> Protocol:
        """This protocol for candidates with these parameter values.

        Raises:
            PopulationSplitError: the candidates have different lengths.
        """
        if self.lengths_by_vocab:
            return self.with_vocab(require_single_value(values["vocab"]))
        has_own_vocab = isinstance(self.vocab, str) and "vocab" in values
        return replace(self, vocab=values["vocab"]) if has_own_vocab else self

    @property
    def settings(self) -> dict[str, int | str | None]:
        """Settings as under ``cost: protocol:``, the input of :func:`load_protocol`."""
        source, target = (None, None) if self.lengths_by_vocab else (self.source, self.target)
        choices = {"artifact": self.artifact, "latency": self.latency_model_path}
        named: dict[str, int | str] = {key: value for key, value in choices.items() if value}
        if self.max_source_length != MAX_SOURCE_TOKENS:
            named["longest"] = self.max_source_length
        if self.shortlist is not None:
            named["shortlist"] = self.shortlist
        named |= self.training.settings
        if self.length:
            named["length"] = self.length
        if self.cache != "float32":
            named["cache"] = self.cache
        return {"name": self.name, "source": source, "target": target, "vocab": self.vocab, **named}

    @property
    def facts(self) -> dict[str, Any]:
        """Settings, number of passes, and weights of the work in MACs."""
        by_vocab = ({"lengths": {str(size): list(pair)
                                 for size, pair in self.lengths_by_vocab.items()}}
                    if self.lengths_by_vocab else {})
        fit = {"fit": self.latency_model_summary} if self.latency_model_summary else {}
        return {**self.settings, "passes": len(self.passes), "counts": dict(self.work_weights),
                **by_vocab, **fit}

    @property
    def latency_model_summary(self) -> str:
        """Device, runtime and error of the latency model; empty without such a model."""
        if self.latency_model_path and os.path.isfile(self.latency_model_path):
            return str(load_latency_model(self.latency_model_path))
        return ""

    @property
    def conventions(self) -> str:
        """How MACs become FLOPs, and which work is left out, in words."""
        counted = [f"{work_type} elements"
                   for work_type in self.work_weights if work_type in ELEMENTWISE_WORK]
        flops = (f"flops = 2 · macs, {' and '.join(counted)} not doubled" if counted
                 else "flops = 2 · macs")
        names = {"norm": "norms", "bias": "biases", "mix": "products across heads"}
        left_out = [name for work_type, name in names.items()
                    if not self.work_weights.get(work_type)]
        kept = ("; cross keys and values are kept from token to token"
                if self.name == "decode-uncached" else "")
        if self.name == "train":
            flops += "; forward and backward pass"
        return (f"{flops}; not in macs: softmax, activations, residual sums, "
                f"{', '.join(left_out)}{kept}")

    def weight_work_lines(self, *work: int) -> list[str]:
        """Line about the ``macs.once`` of the printed architectures; empty if all are 0."""
        if not any(work):
            return []
        counted = "in the total as well" if self.work_weights.get("once") else "not in the total"
        macs = " to ".join(f"{bound:,}" for bound in dict.fromkeys((min(work), max(work))))
        printed = " (printed candidates)" if len(set(work)) > 1 else ""
        return [f"macs.once {macs}{printed}: work on weights only, once per training batch and "
                f"once for inference; {counted}"]

    def __str__(self) -> str:
        extra = [f", +{weight} per {work_type} element"
                 for work_type, weight in self.work_weights.items()
                 if work_type in ELEMENTWISE_WORK]
        lengths = [f"S={source}, T={target}, V={size}"
                   for size, (source, target) in self.lengths_by_vocab.items()]
        tokens = f"length {self.length}" if self.length else f"S={self.source}, T={self.target}"
        vocab = "V: each model's own" if isinstance(self.vocab, str) else f"V={self.vocab}"
        sizes = " | ".join(lengths) or f"{tokens}, {vocab}"
        if self.cache != "float32":
            sizes += f", cache {self.cache}"
        note = ESTIMATE_NOTES.get(str(self.artifact).partition("-")[0], "")
        limit = (f" of up to {self.max_source_length:,} source tokens"
                if self.max_source_length != MAX_SOURCE_TOKENS else "")
        artifact = f", artifact {self.artifact}{limit}{note}" if self.artifact else ""
        summary = self.latency_model_summary
        latency = f"; latency of {summary}" if summary else ""
        shortlist = f", shortlist of {self.shortlist:,} tokens" if self.shortlist else ""
        training = "".join(f", {key} {value:,}" if isinstance(value, int) else f", {value}"
                           for key, value in self.training.settings.items())
        return f"{self.name} ({sizes}{''.join(extra)}{shortlist}{training}{artifact}{latency})"


def weight_numel(shape: Shape, protocol: Protocol) -> Size:
    """Number of entries of a weight, whose shape may contain the vocabulary axis."""
    return math.prod(protocol.vocab_size if isinstance(extent, str) else extent for extent in shape)


# Parts of an exported model whose bytes are estimated.
ESTIMATE_NOTES = {"onnx": ", its graphs estimated", "huggingface":
                  ", its own code estimated, none if a class of transformers fits"}
DECODING_PROTOCOLS = ("decode", "decode-uncached")
ELEMENTWISE_WORK = ("bias", "norm")  # one step per element, not a multiply-add


def _encoder(source: int) -> dict[Axis, int]:
    return {SRC: source, CROSS_MEMORY: source, TEXT: 1}


# In all functions, ``prompt`` is the number of tokens that a decoder-only model reads before the
# target.


def _decoder_prefix(source: int, target: int, prompt: int) -> dict[Axis, int]:
    """Axes of a decoder pass over ``target`` positions, with projected source states."""
    total = prompt + target
    return {TGT: target, TGT_KEYS: target, SRC_KEYS: source, SEQ: total, SEQ_KEYS: total}


def _teacher_forced(source: int, target: int, prompt: int) -> tuple[Pass, ...]:
    return ({**_encoder(source), **_decoder_prefix(source, target, prompt)},)


def _decoding_step(source: int, step: int, prompt: int) -> Pass:
    """The pass for target token ``step``, with a cache."""
    new_tokens = dict.fromkeys((TGT, TGT_STEP, SEQ, SEQ_STEP), 1)
    return {**_decoder_prefix(source, step, prompt), **new_tokens}


def _cached_decoding(source: int, target: int, prompt: int) -> tuple[Pass, ...]:
    """One token per pass.

    In a decoder-only model, the first pass also reads the prompt.
    """
    steps = [_decoding_step(source, t, prompt) for t in range(1, target + 1)]
    first = {SEQ: prompt + 1, SEQ_STEP: prompt + 1}
    return (_encoder(source), *({**step, **first} for step in steps[:1]), *steps[1:])


def _uncached_decoding(source: int, target: int, prompt: int, reproject: bool) -> tuple[Pass, ...]:
    """The decoder on the whole prefix for every token.

    Args:
        reproject: cross-attention keys and values are projected again for every token.
    """
    projections = {CROSS_MEMORY: source} if reproject else {}
    encoder = {SRC: source, TEXT: 1} if reproject else _encoder(source)
    return encoder, *({**_decoder_prefix(source, t, prompt), **projections}
                      for t in range(1, target + 1))


@dataclass(frozen=True)
class _Convention:
    """A protocol without lengths; defaults are (source, target, vocabulary size)."""

    passes: Callable[[int, int, int], tuple[Pass, ...]]
    defaults: tuple[int, int, int] = (30, 30, 32000)
    work_weights: Mapping[str, int] = field(default_factory=lambda: DEFAULT_WORK_WEIGHTS)


PROTOCOLS: dict[str, _Convention] = {
    # One teacher-forced pass over S source and T target tokens.
    "forward": _Convention(_teacher_forced),
    # Greedy decoding of T tokens with a key-value cache.
    "decode": _Convention(_cached_decoding),
    # Greedy decoding without a cache: the decoder runs again on every prefix.
    "decode-uncached": _Convention(lambda s, t, prompt: _uncached_decoding(s, t, prompt, False)),
    # "FLOPS" of EdgeFormer: MACs of a teacher-forced pass over one sentence pair, including work on
    # weights only, plus 5 per LayerNorm element.
    "edgeformer": _Convention(_teacher_forced, (30, 30, 32768),
                              {**DEFAULT_WORK_WEIGHTS, "once": 1, "norm": 5}),
    # MACs of DeLighT and PartialFormer: the decoder and the projections of cross-attention run
    # again on every prefix. Biases are counted, products across heads are not.
    "delight": _Convention(lambda s, t, prompt: _uncached_decoding(s, t, prompt, True),
                           (20, 20, 34040), {"mac": 1, "bias": 1}),
    # Forward and backward pass of one sentence pair in training.
    "train": _Convention(_teacher_forced, work_weights=dict.fromkeys(DEFAULT_WORK_WEIGHTS,
                                                                     PASSES_PER_PRODUCT)),
}


def find_protocol(name: str = "forward", source: int | None = None, target: int | None = None,
                  vocab: int | str | None = None, length: int | None = None) -> Protocol:
    """Find the protocol ``name``, with its default lengths or other ones.

    Args:
        source, target: lengths in tokens.
        vocab: size of the vocabulary, or ``own``.
        length: length of source, target and the context of a decoder-only model, which then does
            not read the source before the target.

    Raises:
        UserError: unknown protocol, or a length below 1.

    Example:
        >>> find_protocol("decode", source=20, target=20).vocab
        32000
    """
    if name not in PROTOCOLS:
        matches = difflib.get_close_matches(name, PROTOCOLS, 1)
        hint = f"; did you mean {matches[0]}?" if matches else ""
        raise UserError(f"unknown protocol {name}; known protocols: {', '.join(PROTOCOLS)}{hint}",
                        code="unknown-protocol")
    convention = PROTOCOLS[name]
    default_source, default_target, default_vocab = convention.defaults
    source = default_source if source is None else source
    target = default_target if target is None else target
    vocab = default_vocab if vocab is None else vocab
    sizes = {"source": source, "target": target, "vocab": vocab, "length": length}
    for key, value in sizes.items():
        if isinstance(value, int) and value < 1:
            raise UserError(f"protocol {name}: {key} is {value}; it must be at least 1",
                            code="below-one")
    if length is not None:
        source = target = length
    passes = convention.passes(source, target, source if length is None else 0)
    return Protocol(name, source, target, vocab, passes, convention.work_weights,
                    has_prompt=length is None)


def override_settings(settings: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a protocol with other values; ``length`` replaces source and target.

    ``source`` or ``target`` replaces ``length``.
    """
    replaced = {"source", "target"} if "length" in overrides else set()
    if overrides.keys() & {"source", "target"}:
        replaced = {"length"}
    kept = {key: value for key, value in settings.items() if key not in replaced}
    return {**kept, **overrides}


def load_protocol(settings: Mapping[str, Any], **overrides: int | str | None) -> Protocol:
    """Load the protocol in the ``cost:`` section of a space, or in a study.

    Args:
        settings: keys of the section, such as ``name``, ``source`` and ``artifact``.
        overrides: values for these keys that take precedence, unless they are None.

    Raises:
        UserError: unknown protocol or format, a length below 1, or a vocabulary for a space that
            has a vocabulary parameter.
    """
    overrides = {key: value for key, value in overrides.items() if value is not None}
    vocab = overrides.get("vocab", OWN_VOCABULARY)
    if settings.get("vocab") == OWN_VOCABULARY and vocab != OWN_VOCABULARY:
        raise UserError(f"the vocabulary is set to {vocab}, but it is a parameter of the space, "
                        "`vocab`", help="remove this setting, or set the parameter "
                        "(--set vocab=…)", code="given-twice")
    chosen = override_settings(settings, overrides)
    length = chosen.get("length")
    if length is not None and {chosen.get("source"), chosen.get("target")} - {None, length}:
        raise UserError(f"the length is {length}, but source or target is set as well",
                        help="remove `length`, or source and target", code="given-twice")
    protocol = find_protocol(chosen.get("name", "forward"),
                             *(chosen.get(key) for key in ("source", "target", "vocab", "length")))
    cache = chosen.get("cache", "float32")
    if cache not in CACHE_TYPES:
        raise UserError(f"unknown type of cached numbers {cache}; known types: "
                        f"{', '.join(CACHE_TYPES)}", code="unknown-cache-type")
    artifact = chosen.get("artifact")
    artifact = artifact and DEFAULT_ARTIFACT_FORMATS.get(artifact, artifact)
    if artifact not in (None, *ARTIFACT_FORMATS):
        raise UserError(f"unknown artifact format {artifact}; known formats: "
                        f"{', '.join(ARTIFACT_FORMATS)}", code="unknown-artifact-format")
    has_position_table = str(artifact).startswith("ctranslate2")
    max_source_length = (chosen.get("longest", MAX_SOURCE_TOKENS) if has_position_table
                         else MAX_SOURCE_TOKENS)
    lengths = {int(size): (source, target)
               for size, (source, target) in chosen.get("lengths", {}).items()}
    shortlist = chosen.get("shortlist")
    if shortlist is not None and protocol.name not in DECODING_PROTOCOLS:
        raise UserError(f"the protocol {protocol.name} computes the logits of all tokens: a "
                        "shortlist needs decoding", help="set the protocol to "
                        f"{' or '.join(DECODING_PROTOCOLS)}", code="bad-value")
    if shortlist is not None and isinstance(protocol.vocab, int) and shortlist > protocol.vocab:
        raise UserError(f"the shortlist has {shortlist:,} tokens, more than the {protocol.vocab:,} "
                        "of the vocabulary", code="bad-value")
    for key in (*TRAINING_SIZES, "shortlist"):
        if chosen.get(key) is not None and chosen[key] < 1:
            raise UserError(f"protocol: {key} is {chosen[key]}; it must be at least 1",
                            code="below-one")
    if overrides.get("pairs") is not None and chosen.get("max_tokens") is None:
        raise UserError(f"{option('pairs')} has no effect without a recipe",
                        help=f"add {option('recipe')}, or remove {option('pairs')}",
                        code="recipe-missing")
    if chosen.get("optimizer") not in (None, *OPTIMIZERS):
        raise UserError(f"unknown optimizer {chosen['optimizer']}; known optimizers: "
                        f"{', '.join(OPTIMIZERS)}", code="unknown-optimizer")
    return replace(protocol, artifact=artifact, latency_model_path=chosen.get("latency"),
                   training=TrainingRun.from_settings(chosen),
                   max_source_length=max_source_length, lengths_by_vocab=lengths, cache=cache,
                   shortlist=shortlist)


def training_protocol(protocol: Protocol) -> Protocol:
    """The protocol of training and memory costs: one teacher-forced pass of the same lengths."""
    prompt = protocol.source if protocol.has_prompt else 0
    passes = _teacher_forced(protocol.source, protocol.target, prompt)
    return replace(protocol, name="forward", passes=passes, work_weights=DEFAULT_WORK_WEIGHTS)


def context_protocols(protocol: Protocol) -> dict[str, Protocol]:
    """Protocols of ``macs.prefill`` and ``macs.decode_step`` for ``protocol.length`` tokens.

    Prefill reads the source, or the whole context of a decoder-only model, and predicts one token.
    The decoding step is that of the last token of the context. Its keys and values include those of
    all tokens before it.
    """
    n = protocol.length
    if n is None:
        return {}
    passes = {"prefill": _cached_decoding(n, 1, n - 1), "decode_step": (_decoding_step(n, n, 0),)}
    return {name: replace(protocol, name="decode", passes=own, work_weights=DEFAULT_WORK_WEIGHTS)
            for name, own in passes.items()}
