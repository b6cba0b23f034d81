"""ONNX graphs of a model: what is made of the source, and a decoding step with its cache.

``encoder`` takes token ids (batch, source); ``decoder`` new tokens, what the encoder made, what
earlier steps kept. An entry of :class:`~scalesearch.nn.model.DecodingCache` is an input under its
module's path, and what comes of it an output with ``.next`` behind; cross keys and values are
outputs of the encoder. A decoder-only model reads the source and goes on by the same graph; its
encoder moves padding. What follows from weights alone is left to onnxruntime, which computes it on
loading a graph: a file has each weight as it was trained, once.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scalesearch.blocks.seq2seq import DecoderOnly
from scalesearch.errors import UserError
from scalesearch.nn.model import DecodingCache, Seq2SeqModel
from scalesearch.nn.module import Module

# as traced: torch.export takes 0 and 1 for constants
TRACING_SIZES = {"batch": 3, "source": 7, "past": 5, "new": 4}
MIN_WEIGHT_SIZE = 64  # numbers; a tensor of more is a weight, and not folded into another

NamedAxes = tuple[str | int, ...]  # axes by name
GraphInputs = Mapping[str, tuple[NamedAxes, torch.dtype]]


@dataclass(frozen=True)
class CacheEntry:
    """A tensor in a cache: its module, name and shape."""

    module: Module
    name: str
    is_from_source: bool
    shape: NamedAxes


@dataclass(frozen=True)
class OnnxGraph:
    """A function of tensors to be traced, with names of what goes in and out."""

    function: Callable[..., tuple[Tensor, ...]]
    inputs: GraphInputs
    outputs: list[str]


def build_graphs(model: Seq2SeqModel) -> dict[str, Any]:
    """``encoder`` and ``decoder`` as models of onnx_ir."""
    model.requires_grad_(False)
    kept = cache_entries(model)
    made = _decoder_only(model, kept) if isinstance(
        model.block, DecoderOnly) else _encoder_decoder(model, kept)
    return {name: trace_graph(model, graph) for name, graph in made.items()}


@torch.no_grad()
def cache_entries(model: Seq2SeqModel) -> list[CacheEntry]:
    """Tensors that the cache holds after a step; what another step makes longer is of the past."""
    source = torch.full((TRACING_SIZES["batch"], TRACING_SIZES["source"]), 4)
    memory = model.encode(source)
    cache = model.new_cache()
    steps = []
    for _ in range(2):
        model.decode(source[:, :1], memory, cache)
        steps.append({(module, at): tensor.shape for module, kept in cache.entries.items()
                      for at, tensor in enumerate(kept)})
    names = {module: name for name, module in model.named_modules()}
    found = []
    for (module, at), shape in steps[0].items():
        of_source = module in cache.source_modules
        grown = ["past" if n != after else n for n, after in zip(shape, steps[1][module, at])]
        axes = (grown[1], "source", *grown[3:]) if of_source else tuple(grown[1:])
        found.append(CacheEntry(module, f"{names[module]}.{at}", of_source, ("batch", *axes)))
    return found


def _encoder_decoder(model: Seq2SeqModel, kept: list[CacheEntry]) -> dict[str, OnnxGraph]:
    of_source, of_past = ([entry for entry in kept if entry.is_from_source is which]
                          for which in (True, False))

    def encode(source: Tensor) -> tuple[Tensor, ...]:
        states, hidden = model.block.encode(model, source)
        modules = dict.fromkeys(entry.module for entry in of_source)
        return (hidden,
                *(tensor for module in modules for tensor in module.block.project(module, states)))

    def step(tokens: Tensor, seen: Tensor, bias: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        cache = _build_cache(kept, values, seen)
        # encoder states are not read any more
        states = model.block.decode(model, tokens, bias, bias, cache)
        return (model.logits(states[:, -1]), *_cache_tensors(cache, of_past))

    inputs = {"tokens": (("batch", 1), torch.long), **_POSITION_INPUT,
              "bias": (("batch", 1, 1, "source"), torch.float32)}
    return {"encoder": OnnxGraph(encode, _SOURCE, ["bias", *(entry.name for entry in of_source)]),
            "decoder": OnnxGraph(step, {**inputs, **_inputs(kept)},
                                 ["logits", *_output_names(of_past)])}


def _decoder_only(model: Seq2SeqModel, kept: list[CacheEntry]) -> dict[str, OnnxGraph]:
    def encode(source: Tensor) -> tuple[Tensor, ...]:
        moved: tuple[Tensor, ...] = model.block.encode(model, source)
        return moved

    def step(tokens: Tensor, seen: Tensor, padding: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        cache = _build_cache(kept, values, seen)
        # the source is in tokens or cached
        states = model.block.decode(model, tokens, tokens[:, :0], padding, cache)
        return (model.logits(states[:, -1]), *_cache_tensors(cache, kept))

    inputs = {"tokens": (("batch", "new"), torch.long), **_POSITION_INPUT,
              "padding": (("batch", "source"), torch.bool)}
    return {"encoder": OnnxGraph(encode, _SOURCE, ["moved", "padding"]),
            "decoder": OnnxGraph(step, {**inputs, **_inputs(kept)},
                                 ["logits", *_output_names(kept)])}


_SOURCE: GraphInputs = {"source": (("batch", "source"), torch.long)}
# its length alone counts: not every cache has such an axis
_POSITION_INPUT: GraphInputs = {"seen": (("past",), torch.long)}


def _inputs(kept: list[CacheEntry]) -> GraphInputs:
    return {entry.name: (entry.shape, torch.float32) for entry in kept}


def _output_names(kept: list[CacheEntry]) -> list[str]:
    return [f"{entry.name}.next" for entry in kept]


def _build_cache(kept: list[CacheEntry], values: tuple[Tensor, ...], seen: Tensor) -> DecodingCache:
    cache = DecodingCache()
    cache.length = seen.shape[0]
    for entry, value in zip(kept, values):
        cache.entries[entry.module] = (*cache.entries.get(entry.module, ()), value)
    cache.source_modules = {entry.module for entry in kept if entry.is_from_source}
    return cache


def _cache_tensors(cache: DecodingCache, kept: list[CacheEntry]) -> list[Tensor]:
    return [tensor for module in dict.fromkeys(entry.module for entry in kept)
            for tensor in cache[module]]


class _TracedModule(nn.Module):
    """A function on a model, as a module that has the model's weights."""

    def __init__(self, model: nn.Module, run: Callable[..., tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.model = model
        self.run = run

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.run(*inputs)


def trace_graph(model: nn.Module, graph: OnnxGraph) -> Any:
    """``graph`` as a model of onnx_ir. Raises UserError where PyTorch cannot trace it."""
    from onnx_ir.passes import common
    from onnxscript.optimizer import fold_constants

    examples = []
    axes = []
    for shape, dtype in graph.inputs.values():
        examples.append(torch.ones([TRACING_SIZES[n] if isinstance(n, str) else n for n in shape],
                                   dtype=dtype))
        axes.append({at: torch.export.Dim.DYNAMIC
                     for at, n in enumerate(shape) if isinstance(n, str)})
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(_TracedModule(model, graph.function).eval(),
                                          tuple(examples), dynamic_shapes=(tuple(axes),))
            made = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False).model
    except Exception as error:  # of many kinds, with nothing but Exception in common
        raise UserError("PyTorch cannot trace this architecture: "
                        f"{' '.join(str(error).split())[:300]}",
                        help="a block of a package takes "
                        "sizes from x.shape; len(x) would make a constant of them",
                        code="not-traceable") from error
    common.InlinePass()(made)
    # onnxruntime rewrites the rest itself
    fold_constants(made, onnx_shape_inference=False, should_fold=_is_foldable)
    for tidy in (common.RemoveUnusedNodesPass(), common.LiftConstantsToInitializersPass(True, 0),
                 common.CommonSubexpressionEliminationPass(), common.OutputFixPass(),
                 common.NameFixPass(), common.ClearMetadataAndDocStringPass()):
        tidy(made)
    for value, (name, (shape, _)) in zip(made.graph.inputs, graph.inputs.items(), strict=True):
        value.name, value.shape = name, type(value.shape)(shape)
    for value, name in zip(made.graph.outputs, graph.outputs, strict=True):
        value.name = name
    return made


def _is_foldable(node: Any) -> bool | None:
    """False if the node makes something of a weight, which the file would then hold twice."""
    sizes = [value.const_value.size
             for value in node.inputs if value is not None and value.const_value is not None]
    return False if max(sizes, default=0) > MIN_WEIGHT_SIZE else None


@contextmanager
def _quiet() -> Iterator[None]:
    """What exporters say of themselves is not shown."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
