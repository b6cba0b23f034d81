"""Protocols: the lengths, passes and kinds of work for which a cost is stated.

A protocol is a list of passes, each binding the blocks' axes, and a weight for each kind of work.
All a ledger needs of it is the sum over passes of a product of axes, so a protocol is a function
from monomials to ints.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from scalesearch.blocks.core import CROSS_MEMORY, SEQ, SEQ_KEYS, SRC, SRC_KEYS, TGT, TGT_KEYS, VOCAB, Axis, Shape, Size
from scalesearch.blocks.sizes import require_single_value
from scalesearch.cost.latency_model import load_latency_model
from scalesearch.errors import UserError
from scalesearch.lowering import MAX_SOURCE_TOKENS
from scalesearch.space.schema.cost_names import ARTIFACT_FORMATS, OWN_VOCABULARY

Pass = Mapping[Axis, int]  # axes that are not named are 0: that part of the model does not run


# what counts as a multiply-accumulate, unless a convention says otherwise
DEFAULT_WORK_WEIGHTS = {"mac": 1, "mix": 1}


@dataclass(frozen=True)
class Protocol:
    """A named convention at given lengths.

    ``work_weights`` weighs the kinds of work that its MACs include.

    Attributes:
        vocab: entries, or ``own`` where each candidate says its own; the blocks of such ones have
            no such axis.
        lengths_by_vocab: vocabulary to (source, target), where lengths follow from it; costs are
            then of :meth:`of` alone.
        artifact: format and quantization of which ``artifact.bytes`` are; None: the bill has no
            such cost.
        latency_model_path: file of the fit that makes ``latency.predicted``; None: the bill has no
            such cost.
        max_source_length: source tokens that the artifact must take, where it holds a table of
            positions (CTranslate2's).
    """

    name: str
    source: int
    target: int
    vocab: int | str
    passes: tuple[Pass, ...] = field(repr=False)
    work_weights: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_WORK_WEIGHTS),
                                            repr=False)
    lengths_by_vocab: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    artifact: str | None = None
    latency_model_path: str | None = None
    max_source_length: int = MAX_SOURCE_TOKENS

    @cached_property
    def _sums(self) -> dict[tuple[Axis, ...], int]:
        return {}

    def extent(self, axes: tuple[Axis, ...]) -> int:
        """Sum over the passes of the product of ``axes`` (sorted; the empty product is 1 a pass that runs)."""
        if axes not in self._sums:
            assert not self.lengths_by_vocab, "costs are of the protocol of a candidate"
            words = {VOCAB: self.vocab_size} if VOCAB in axes else {}
            values = ({**words, **step} for step in self.passes)
            self._sums[axes] = sum(math.prod(step.get(axis, 0) for axis in axes) for step in values)
        return self._sums[axes]

    @property
    def vocab_size(self) -> Size:
        """The vocabulary's size where a weight has that axis.

        Raises UserError where there is none for all.
        """
        if isinstance(self.vocab, str):
            raise UserError("the architecture has no vocabulary of its own, as the space has",
                            help="answer it: --set vocab=8k, in a study file under set:",
                            code="vocab-missing")
        return self.vocab

    @property
    def shared_vocab(self) -> Size | None:
        """The vocabulary that blocks are bound to; None where they hold their own."""
        return None if isinstance(self.vocab, str) else self.vocab

    def with_vocab(self, vocab: int | None) -> Protocol:
        """This protocol for an architecture whose own vocabulary is ``vocab``, if it has one.

        Raises:
            UserError: it has none, and the protocol leaves it to each architecture.
        """
        size = self.vocab_size if vocab is None else vocab
        source, target = self.lengths_by_vocab[size] if self.lengths_by_vocab else (
            self.source, self.target)
        return self.with_lengths(source, target, size)

    def with_lengths(self, source: int, target: int, vocab: Size | str) -> Protocol:
        """This protocol at these lengths, with this vocabulary."""
        made = find_protocol(self.name, source, target, vocab)
        return replace(made, work_weights=self.work_weights, artifact=self.artifact,
                       latency_model_path=self.latency_model_path,
                       max_source_length=self.max_source_length)

    def for_candidates(self, values: Mapping[str, Any]) -> Protocol:
        """The protocol of candidates with these answers.

        Raises Split where their lengths differ.
        """
        return self.with_vocab(
            require_single_value(values["vocab"])) if self.lengths_by_vocab else self

    @property
    def settings(self) -> dict[str, int | str | None]:
        """Name and lengths, as under ``cost: protocol:``; :func:`load_protocol` reads them back."""
        source, target = (None, None) if self.lengths_by_vocab else (self.source, self.target)
        choices = {"artifact": self.artifact, "latency": self.latency_model_path}
        named: dict[str, int | str] = {key: value for key, value in choices.items() if value}
        named |= {"longest": self.max_source_length} if self.max_source_length != MAX_SOURCE_TOKENS else {}
        return {"name": self.name, "source": source, "target": target, "vocab": self.vocab, **named}

    def to_json(self) -> dict[str, Any]:
        """Name, lengths, and what the MACs include."""
        by_vocab = ({"lengths": {str(size): list(pair)
                                 for size, pair in self.lengths_by_vocab.items()}}
                    if self.lengths_by_vocab else {})
        fit = {"fit": self.latency_model_summary} if self.latency_model_summary else {}
        return {**self.settings, "passes": len(self.passes), "counts": dict(self.work_weights),
                **by_vocab, **fit}

    @property
    def latency_model_summary(self) -> str:
        """Device, runtime and fit of predicted latencies, in words; empty where there are none."""
        return str(load_latency_model(self.latency_model_path)) if self.latency_model_path and Path(
            self.latency_model_path).is_file() else ""

    @property
    def conventions(self) -> str:
        """How MACs become FLOPs, and what is left out: in words that stand under every table of costs."""
        counted = [f"{kind} elements" for kind in self.work_weights if kind in ELEMENTWISE_WORK]
        flops = (f"flops = 2 · macs, {' and '.join(counted)} not doubled" if counted
                 else "flops = 2 · macs")
        rest = [words
                for kind, words in (("norm", "norms"), ("bias", "biases"),
                                    ("mix", "products across " "heads"))
                if not self.work_weights.get(kind)]
        kept = ("; cross keys and values are kept from token to token"
                if self.name == "decode-uncached" else "")
        return f"{flops}; left out: softmax, activations, residual sums, {', '.join(rest)}{kept}"

    def weight_work_lines(self, *work: int) -> list[str]:
        """Line on the ``macs.once`` of some architectures: multiply-adds on weights alone; none where all are 0."""
        if not any(work):
            return []
        counted = "in the total as well" if self.work_weights.get("once") else "not in the total"
        most = f"{'up to ' * (len(set(work)) > 1)}{max(work):,}"
        return [f"macs.once {most}: work on weights alone, once a batch in training and once and "
                f"for all for inference; {counted}"]

    def __str__(self) -> str:
        extra = [f", +{n} per {kind} element"
                 for kind, n in self.work_weights.items() if kind in ELEMENTWISE_WORK]
        lengths = [f"S={source}, T={target}, V={size}"
                   for size, (source, target) in self.lengths_by_vocab.items()]
        said = " | ".join(lengths) or f"S={self.source}, T={self.target}, V={self.vocab}"
        rough = ESTIMATE_NOTES.get(str(self.artifact).partition("-")[0], "")
        room = (f" of up to {self.max_source_length:,} source tokens"
                if self.max_source_length != MAX_SOURCE_TOKENS else "")
        artifact = f", artifact {self.artifact}{room}{rough}" if self.artifact else ""
        return f"{self.name} ({said}{''.join(extra)}{artifact}{f'; latency of {self.latency_model_summary}' if self.latency_model_summary else ''})"


def weight_numel(shape: Shape, protocol: Protocol) -> Size:
    """The number of entries of a weight; the only axis it may have is the vocabulary."""
    return math.prod(protocol.vocab_size if isinstance(extent, str) else extent for extent in shape)


# beside the weights' bytes
ESTIMATE_NOTES = {"onnx": ", its graphs estimated", "huggingface": ", its code estimated"}
ELEMENTWISE_WORK = ("bias", "norm")  # kinds of work that are no multiply-adds, one step an element


def _encoder(source: int) -> dict[Axis, int]:
    return {SRC: source, CROSS_MEMORY: source}


def _decoder_prefix(source: int, target: int) -> dict[Axis, int]:
    """The decoder over ``target`` positions at once, source states already there but not projected."""
    total = source + target
    return {TGT: target, TGT_KEYS: target, SRC_KEYS: source, SEQ: total, SEQ_KEYS: total}


def _teacher_forced(source: int, target: int) -> tuple[Pass, ...]:
    return ({**_encoder(source), **_decoder_prefix(source, target)},)


def _cached_decoding(source: int, target: int) -> tuple[Pass, ...]:
    """One token a pass; the first also reads the source, where there is no encoder to do it."""
    steps = [{**_decoder_prefix(source, t), TGT: 1, SEQ: 1} for t in range(1, target + 1)]
    if steps:
        steps[0] |= {SEQ: source + 1}
    return (_encoder(source), *steps)


def _uncached_decoding(source: int, target: int, reproject: bool) -> tuple[Pass, ...]:
    """The decoder from the start at every token; ``reproject``: cross keys and values too."""
    again = {CROSS_MEMORY: source} if reproject else {}
    first = {SRC: source} if reproject else _encoder(source)
    return (first, *({**_decoder_prefix(source, t), **again} for t in range(1, target + 1)))


@dataclass(frozen=True)
class _Convention:
    """A protocol before its lengths are known; ``defaults``: source, target, vocab."""

    passes: Callable[[int, int], tuple[Pass, ...]]
    defaults: tuple[int, int, int] = (30, 30, 32000)
    work_weights: Mapping[str, int] = field(default_factory=lambda: DEFAULT_WORK_WEIGHTS)


PROTOCOLS: dict[str, _Convention] = {
    # One teacher-forced pass over S source and T target tokens.
    "forward": _Convention(_teacher_forced),
    # Greedy decoding of T tokens with a key-value cache.
    "decode": _Convention(_cached_decoding),
    # The decoder re-run on every prefix.
    "decode-uncached": _Convention(lambda s, t: _uncached_decoding(s, t, False)),
    # EdgeFormer's "FLOPS": MACs of a teacher-forced pass of one sentence pair, work on weights
    # alone included, plus 5
    # for each LayerNorm element.
    "edgeformer": _Convention(_teacher_forced, (30, 30, 32768), {**DEFAULT_WORK_WEIGHTS, "once": 1, "norm": 5}),
    # DeLighT's and PartialFormer's MACs: the decoder and its cross keys and values re-run on every
    # prefix, biases
    # counted, products across heads not.
    "delight": _Convention(lambda s, t: _uncached_decoding(s, t, True), (20, 20, 34040), {"mac": 1, "bias": 1}),
}


def find_protocol(name: str = "forward", source: int | None = None, target: int | None = None,
                  vocab: int | str | None = None) -> Protocol:
    """The protocol ``name`` at given lengths (tokens) and vocabulary (which may be ``own``), or at its own.

    Raises:
        UserError: no such protocol, or a length below 1.
    """
    if name not in PROTOCOLS:
        near = difflib.get_close_matches(name, PROTOCOLS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"protocol {name}: there are {', '.join(PROTOCOLS)}{hint}",
                        code="unknown-protocol")
    convention = PROTOCOLS[name]
    s, t, size = convention.defaults
    s, t = (given if given is not None else own for given, own in ((source, s), (target, t)))
    v = size if vocab is None else vocab
    for what, value in (("source", s), ("target", t), ("vocab", v)):
        if isinstance(value, int) and value < 1:
            raise UserError(f"protocol {name}: {what} is {value}; it must be at least 1",
                            code="below-one")
    return Protocol(name, s, t, v, convention.passes(s, t), convention.work_weights)


def load_protocol(settings: Mapping[str, Any], **overrides: int | str | None) -> Protocol:
    """The protocol that a space file's ``cost:``, or a study, names; ``overrides`` (name, source, target, vocab) win.

    Raises:
        UserError: no such protocol, a length below 1, or a vocabulary for a space that has its own.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    if settings.get("vocab") == OWN_VOCABULARY and given.get(
            "vocab", OWN_VOCABULARY) != OWN_VOCABULARY:
        raise UserError(
            f"the vocabulary is {given['vocab']} here, and the space has its own, " "under `vocab`",
            help="leave this one out, or answer that one (--set vocab=…)", code="given-twice")
    chosen = {**settings, **given}
    made = find_protocol(chosen.get("name", "forward"),
                         *(chosen.get(key) for key in ("source", "target", "vocab")))
    if (artifact := chosen.get("artifact")) not in (None, *ARTIFACT_FORMATS):
        raise UserError(f"artifact {artifact}: there are {', '.join(ARTIFACT_FORMATS)}",
                        code="unknown-artifact-format")
    table = str(artifact).startswith("ctranslate2")
    made = replace(made, artifact=artifact, latency_model_path=chosen.get("latency"),
                   max_source_length=chosen.get("longest", MAX_SOURCE_TOKENS) if table
                   else MAX_SOURCE_TOKENS)
    pairs = {int(size): (source, target)
             for size, (source, target) in chosen.get("lengths", {}).items()}
    return replace(made, lengths_by_vocab=pairs) if pairs else made


def training_protocol(protocol: Protocol) -> Protocol:
    """One teacher-forced pass at the protocol's lengths: what memory is stated for."""
    passes = _teacher_forced(protocol.source, protocol.target)
    return replace(protocol, name="forward", passes=passes, work_weights=DEFAULT_WORK_WEIGHTS)
