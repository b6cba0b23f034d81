"""ONNX graphs of a model: the encoder, and a decoding step with its cache.

``encoder`` takes token ids (batch, source). ``decoder`` takes new tokens, the outputs of the
encoder and the cache of earlier steps. An entry of :class:`~scalesearch.nn.model.DecodingCache` is
an input named after its module; the updated entry is the output of that name with the suffix
``.next``. Keys and values of cross-attention are outputs of the encoder. A decoder-only model
reads source and target with the same graph; its encoder only moves padding. Expressions of weights
only are not folded, because onnxruntime computes them when it loads a graph. A file therefore holds
each trained weight once.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scalesearch.blocks.seq2seq import DecoderOnly
from scalesearch.errors import UserError
from scalesearch.nn.model import DecodingCache, Seq2SeqModel
from scalesearch.nn.module import Module

# Sizes of the example inputs; torch.export treats sizes 0 and 1 as constants.
TRACING_SIZES = {"batch": 3, "source": 7, "past": 5, "new": 4}
MIN_WEIGHT_SIZE = 64  # tensors with more numbers are weights and not folded

NamedAxes = tuple[str | int, ...]  # names of dynamic axes, and sizes of the others
GraphInputs = Mapping[str, tuple[NamedAxes, torch.dtype]]


@dataclass(frozen=True)
class CacheEntry:
    """A tensor of the decoding cache.

    ``is_from_source`` is true if it depends on the source only, such as keys of cross-attention.
    """

    module: Module
    name: str
    is_from_source: bool
    shape: NamedAxes


@dataclass(frozen=True)
class OnnxGraph:
    """A function of tensors to trace, with its inputs and the names of its outputs."""

    function: Callable[..., tuple[Tensor, ...]]
    inputs: GraphInputs
    outputs: list[str]


def build_graphs(model: Seq2SeqModel, opset: int) -> dict[str, Any]:
    """Build ``encoder`` and ``decoder`` as models of onnx_ir."""
    model.requires_grad_(False)
    entries = cache_entries(model)
    if isinstance(model.block, DecoderOnly):
        graphs = _decoder_only(model, entries)
    else:
        graphs = _encoder_decoder(model, entries)
    return {name: trace_graph(model, graph, opset) for name, graph in graphs.items()}


@torch.no_grad()
def cache_entries(model: Seq2SeqModel) -> list[CacheEntry]:
    """List the tensors of the cache; axes that grow with each step are ``past``."""
    source = torch.full((TRACING_SIZES["batch"], TRACING_SIZES["source"]), 4)
    memory = model.encode(source)
    cache = model.new_cache()
    cache.drops_keys = False
    steps = []
    for _ in range(2):
        model.decode(source[:, :1], memory, cache)
        steps.append({(module, index): tensor.shape for module, tensors in cache.entries.items()
                      for index, tensor in enumerate(tensors)})
    names = {module: name for name, module in model.named_modules()}
    entries = []
    for (module, index), shape in steps[0].items():
        is_from_source = module in cache.source_modules
        next_shape = steps[1][module, index]
        axes = tuple("past" if n != next_n else n for n, next_n in zip(shape, next_shape))[1:]
        if is_from_source:
            axes = (axes[0], "source", *axes[2:])
        entries.append(CacheEntry(module, f"{names[module]}.{index}", is_from_source,
                                  ("batch", *axes)))
    return entries


def _encoder_decoder(model: Seq2SeqModel, entries: list[CacheEntry]) -> dict[str, OnnxGraph]:
    source_entries = [entry for entry in entries if entry.is_from_source]
    past_entries = [entry for entry in entries if not entry.is_from_source]

    def encode(source: Tensor) -> tuple[Tensor, ...]:
        states, hidden = model.block.encode(model, source)
        modules = dict.fromkeys(entry.module for entry in source_entries)
        return (hidden,
                *(tensor for module in modules for tensor in module.block.project(module, states)))

    def step(tokens: Tensor, past: Tensor, bias: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        cache = _build_cache(entries, values, past)
        # The encoder states are in the cache; ``bias`` only takes their place.
        states = model.block.decode(model, tokens, bias, bias, cache)
        return (model.logits(states[:, -1]), *_cache_tensors(cache, past_entries))

    inputs = {"tokens": (("batch", 1), torch.long), **_POSITION_INPUT,
              "bias": (("batch", 1, 1, "source"), torch.float32)}
    encoder_outputs = ["bias", *(entry.name for entry in source_entries)]
    return {"encoder": OnnxGraph(encode, _SOURCE, encoder_outputs),
            "decoder": OnnxGraph(step, {**inputs, **_inputs(entries)},
                                 ["logits", *_output_names(past_entries)])}


def _decoder_only(model: Seq2SeqModel, entries: list[CacheEntry]) -> dict[str, OnnxGraph]:
    def encode(source: Tensor) -> tuple[Tensor, ...]:
        moved: tuple[Tensor, ...] = model.block.encode(model, source)
        return moved

    def step(tokens: Tensor, past: Tensor, padding: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        cache = _build_cache(entries, values, past)
        # The source is part of ``tokens``, or in the cache.
        states = model.block.decode(model, tokens, tokens[:, :0], padding, cache)
        return (model.logits(states[:, -1]), *_cache_tensors(cache, entries))

    inputs = {"tokens": (("batch", "new"), torch.long), **_POSITION_INPUT,
              "padding": (("batch", "source"), torch.bool)}
    return {"encoder": OnnxGraph(encode, _SOURCE, ["moved", "padding"]),
            "decoder": OnnxGraph(step, {**inputs, **_inputs(entries)},
                                 ["logits", *_output_names(entries)])}


_SOURCE: GraphInputs = {"source": (("batch", "source"), torch.long)}
# Only the length of ``seen`` is used, because not every cache has an axis of past positions.
_POSITION_INPUT: GraphInputs = {"seen": (("past",), torch.long)}


def _inputs(entries: list[CacheEntry]) -> GraphInputs:
    return {entry.name: (entry.shape, torch.float32) for entry in entries}


def _output_names(entries: list[CacheEntry]) -> list[str]:
    return [f"{entry.name}.next" for entry in entries]


def _build_cache(entries: list[CacheEntry], values: tuple[Tensor, ...],
                 past: Tensor) -> DecodingCache:
    cache = DecodingCache()
    cache.drops_keys = False  # all entries have the same number of positions
    cache.length = past.shape[0]
    for entry, value in zip(entries, values):
        cache.entries[entry.module] = (*cache.entries.get(entry.module, ()), value)
    cache.source_modules = {entry.module for entry in entries if entry.is_from_source}
    return cache


def _cache_tensors(cache: DecodingCache, entries: list[CacheEntry]) -> list[Tensor]:
    modules = dict.fromkeys(entry.module for entry in entries)
    return [tensor for module in modules for tensor in cache[module]]


class _TracedModule(nn.Module):
    """A function of a model as a module that registers the weights of the model."""

    def __init__(self, model: nn.Module, run: Callable[..., tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.model = model
        self.run = run

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.run(*inputs)


def trace_graph(model: nn.Module, graph: OnnxGraph, opset: int) -> Any:
    """Trace ``graph`` as a model of onnx_ir. Raises UserError if this fails."""
    from onnx.helper import find_min_ir_version_for, make_opsetid
    from onnx_ir.passes import common
    from onnxscript.optimizer import fold_constants

    examples = []
    axes = []
    for shape, dtype in graph.inputs.values():
        examples.append(torch.ones([TRACING_SIZES[n] if isinstance(n, str) else n for n in shape],
                                   dtype=dtype))
        axes.append({axis: torch.export.Dim.DYNAMIC
                     for axis, n in enumerate(shape) if isinstance(n, str)})
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(_TracedModule(model, graph.function).eval(),
                                          tuple(examples), dynamic_shapes=(tuple(axes),))
            onnx_model = torch.onnx.export(
                program, dynamo=True, optimize=False, verbose=False, opset_version=opset,
                custom_translation_table={torch.ops.aten.log_sigmoid.default: _log_sigmoid}).model
    except Exception as error:  # the exceptions have no other common base class
        raise UserError("PyTorch cannot trace this architecture: "
                        f"{' '.join(str(error).split())[:300]}",
                        help="a custom block must read sizes from x.shape; len(x) turns a size "
                        "into a constant",
                        code="not-traceable") from error
    finally:
        log.setLevel(level)
    onnx_model.ir_version = find_min_ir_version_for([make_opsetid("", opset)])
    common.InlinePass()(onnx_model)
    # onnxruntime does all other rewriting.
    fold_constants(onnx_model, onnx_shape_inference=False, should_fold=_is_foldable)
    for cleanup in (common.RemoveUnusedNodesPass(), common.LiftConstantsToInitializersPass(True, 0),
                    common.CommonSubexpressionEliminationPass(), common.OutputFixPass(),
                    common.NameFixPass(), common.ClearMetadataAndDocStringPass()):
        cleanup(onnx_model)
    inputs = zip(onnx_model.graph.inputs, graph.inputs.items(), strict=True)
    for value, (name, (shape, _)) in inputs:
        value.name = name
        value.shape = type(value.shape)(shape)
    for value, name in zip(onnx_model.graph.outputs, graph.outputs, strict=True):
        value.name = name
    return onnx_model


def _log_sigmoid(x: Any) -> Any:
    """Translate log sigmoid(x) as -softplus(-x).

    The translation of PyTorch takes the logarithm of the sigmoid, which onnxruntime rounds to zero
    below -18.
    """
    from onnxscript import opset18

    return opset18.Neg(opset18.Softplus(opset18.Neg(x)))


def _is_foldable(node: Any) -> bool | None:
    """Return False if the node reads a weight, of which folding would store a copy.

    Nodes with several outputs cannot be folded; onnxscript would print a warning.
    """
    sizes = [value.const_value.size
             for value in node.inputs if value is not None and value.const_value is not None]
    is_kept = max(sizes, default=0) > MIN_WEIGHT_SIZE or len(node.outputs) > 1
    return False if is_kept else None
