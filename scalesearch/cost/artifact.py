"""Bytes of the files that a model is exported as: weights, shared ones once, their scales, and the vocabulary.

Weights and scales are exact; heads of files, graphs, code and the vocabulary's text are estimated,
to under 1 % of the whole from a million weights on. What is copied beside them (a record, the
tokenizer where a format has a vocabulary of its own) is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

from scalesearch.blocks.core import Block, Size, iterate_cost_lines
from scalesearch.blocks.leaves import Embedding, Linear, PositionTable
from scalesearch.blocks.maps.tensor_chains import ChainLinearBase
from scalesearch.blocks.mixers.scores import RelativeKeys
from scalesearch.blocks.sizes import map_values, select_where
from scalesearch.cost.protocol import Protocol, weight_numel
from scalesearch.lowering.ctranslate2 import plan_variables
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.space.syntax.diagnostics import UnbuildableError

FLOAT32_BYTES = 4
# Of sentencepiece BPE models of 1,000 to 8,000 pieces (Multi30k En-De, the built-in corpus), within
# 3 %.
PIECE_BYTES_AT_1000 = 4.74
PIECE_BYTES_PER_DOUBLING = 0.83  # bytes of a piece at 1,000 pieces, and more for each doubling
PIECE_HEADER_BYTES = 9.05  # score and lengths of a piece in a sentencepiece model
TENSOR_HEADER_BYTES = 75  # of a tensor in a safetensors file, beside its name
BUNDLED_CODE_BYTES = 65500
# bundled code, settings and model card: of any model, and of a kind of leaf
CODE_BYTES_PER_LEAF_TYPE = 1980
# Bytes of both ONNX graphs: of any model, of a weight's entry, of a product of integers, of a
# leaf's call, of a chain's
# that is applied core by core. Fitted to 50 random draws, ten each from `papers`, `edgeformer`,
# `transformer`, `slim`
# and `edge`, float and int8; of a draw that was left out 6 % off in the mean, 3 % in the median, 36
# % at most.
ONNX_GRAPH_BYTES = 2239
ONNX_WEIGHT_ENTRY_BYTES = 73
ONNX_INTEGER_MATMUL_BYTES = 190
ONNX_LEAF_BYTES = 983
ONNX_CHAIN_CORE_BYTES = 3933
ONNX_LEAF_BYTES_BY_CLASS = {"AdaptiveEmbedding": 0, "UnsavedLinear": 247, "Attention": 776,
                            "ChainEmbedding": 8160, "Convolution": 1731, "DecoderOnly": 1858,
                            "Embedding": 0, "FusedAttention": 1535, "GEGLU": 0, "HeadMixing": 1502,
                            "KeyValueCache": 940, "LayerNorm": 0, "Linear": 193, "MatMul": 43,
                            "PartialFFN": 0, "PositionTable": 178, "RelativeKeys": 326,
                            "StateCache": 0, "ExplicitAttention": 0, "SelfGated": 0, "SoftPOS": 0, "SwiGLU": 907}
QUANTIZED_LEAF_TYPES = (Linear, Embedding, PositionTable, RelativeKeys)
MIN_QUANTIZED_SIZE = 1024  # what int8 quantizes, and from which size


def artifact_bytes(block: Block, protocol: Protocol) -> Size:
    """Bytes of the artifact that ``protocol`` names, such as ``ctranslate2-int8``.

    Raises:
        Unbuildable: the format cannot hold this architecture.
    """
    assert protocol.artifact is not None
    name, _, quantization = protocol.artifact.partition("-")
    return FORMATS[name](block, protocol, quantization or "none")


def torch_bytes(block: Block, protocol: Protocol, quantization: str) -> Size:
    """Of ``model.safetensors`` in float32 and ``tokenizer.model``."""
    return _safetensors(block, protocol, FLOAT32_BYTES, 0) + _vocabulary_bytes(
        protocol, lambda words: mean_piece_bytes(words) + PIECE_HEADER_BYTES)


def _safetensors(block: Block, protocol: Protocol, bytes_per_number: int, prefix: int) -> Size:
    """Bytes of weights of ``bytes_per_number`` bytes a number, whose names have ``prefix`` more characters than on the bill."""
    total: Size = 8
    for line in iterate_cost_lines(block, vocab=protocol.shared_vocab):
        for name, shape in line.weights.items():
            head = TENSOR_HEADER_BYTES + prefix + len(line.path) + len(name)
            total = total + line.weight_copies[name] * (
                bytes_per_number * weight_numel(shape, protocol) + head)
    return total


def huggingface_bytes(block: Block, protocol: Protocol, quantization: str) -> Size:
    """Of weights, ``tokenizer.json``, the code, which is estimated from the kinds of leaf, settings and model card."""
    kinds = {type(line.block) for line in iterate_cost_lines(block, vocab=protocol.shared_vocab)}
    weights = _safetensors(
        block, protocol, UNQUANTIZED_ELEMENT_BYTES.get(quantization, FLOAT32_BYTES), len("model."))
    return weights + BUNDLED_CODE_BYTES + CODE_BYTES_PER_LEAF_TYPE * len(kinds) + _vocabulary_bytes(
        protocol, tokenizer_json_entry_bytes)


def tokenizer_json_entry_bytes(vocab_size: int) -> float:
    """Mean bytes of an entry of ``tokenizer.json``, with the merges that make it."""
    return 28.64 + 3.66 * math.log2(max(vocab_size, 2) / 1000)


def onnx_bytes(block: Block, protocol: Protocol, quantization: str) -> Size:
    """Of ``weights.bin``, and of both graphs, estimated from the leaves that run and from the weights they name."""
    total: Size = ONNX_GRAPH_BYTES
    for line in iterate_cost_lines(block, vocab=protocol.shared_vocab):
        total = total + line.calls * (
            select_where(line.block.applies_cores, ONNX_CHAIN_CORE_BYTES, ONNX_LEAF_BYTES)
            if isinstance(line.block, ChainLinearBase)
            else ONNX_LEAF_BYTES_BY_CLASS.get(type(line.block).__name__, ONNX_LEAF_BYTES))
        for name, shape in line.weights.items():
            size = weight_numel(shape, protocol)
            stored: Size = map_values(size,
                                      lambda numbers: FLOAT32_BYTES * numbers
                                      + _alignment_padding(FLOAT32_BYTES * numbers))
            if quantization == "int8" and len(shape) == 2 and isinstance(
                    line.block, QUANTIZED_LEAF_TYPES):
                rows = weight_numel(shape[:1], protocol)
                scales = map_values(rows,
                                    lambda rows: FLOAT32_BYTES * rows
                                    + _alignment_padding(FLOAT32_BYTES * rows))
                integers = size >= MIN_QUANTIZED_SIZE
                stored = select_where(
                    integers,
                    map_values(size, lambda numbers: numbers + _alignment_padding(numbers))
                    + scales, stored)
                total = total + select_where(integers, line.calls * ONNX_INTEGER_MATMUL_BYTES, 0)
            total = total + line.weight_copies[name] * (stored + ONNX_WEIGHT_ENTRY_BYTES)
    return total


def _alignment_padding(stored: int) -> int:
    """Bytes behind a tensor up to the next multiple of 64, if it lies beside the graph."""
    return -stored % 64 if stored > 256 else 0


def _vocabulary_bytes(protocol: Protocol, entry_bytes: Callable[[int], float]) -> Size:
    """Bytes of a vocabulary's text."""
    found: Size = map_values(protocol.vocab_size, lambda words: round(words * entry_bytes(words)))
    return found


def mean_piece_bytes(vocab_size: int) -> float:
    """Mean bytes of an entry of a vocabulary."""
    return PIECE_BYTES_AT_1000 + PIECE_BYTES_PER_DOUBLING * math.log2(max(vocab_size, 2) / 1000)


def ctranslate2_bytes(block: Block, protocol: Protocol, quantization: str) -> Size:
    """Of ``model.bin``, ``config.json`` and the vocabulary; see :class:`scalesearch.lowering.ctranslate2.VariablePlan`."""
    if reasons := find_unsupported_parts(block):
        raise UnbuildableError("protocol.artifact", f"ctranslate2 cannot hold it: {reasons[0]}")
    made = plan_variables(block, protocol.shared_vocab, protocol.max_source_length)
    total: Size = CONFIG_BYTES + len(made.scalars) * SCALAR_HEADER_BYTES
    stored: dict[Hashable, str] = {}
    for variable in sorted(made.variables, key=lambda one: one.name):
        shape = variable.shape
        first = stored.setdefault((len(variable.shape), variable.sharing_key), variable.name)
        if first != variable.name:
            total = total + len(variable.name) + len(first) + 6
            continue
        each, a_row, fixed_part = (QUANTIZED_ELEMENT_BYTES[quantization] if variable.is_quantized
                                   else (UNQUANTIZED_ELEMENT_BYTES.get(quantization, 4), 0, 0))
        head = len(variable.name) + 8 + 4 * len(shape) + (
            len(variable.name) + 20) * bool(a_row or fixed_part)
        total = total + math.prod(shape) * each + shape[0] * a_row + fixed_part + head
    return total + _vocabulary_bytes(
        protocol, lambda words: mean_piece_bytes(words) + json_piece_overhead_bytes(words))


def json_piece_overhead_bytes(vocab_size: int) -> float:
    """Mean bytes of an entry of a JSON vocabulary beside the piece itself: escapes, quotes and a line."""
    return 7.64 + 0.23 * math.log2(max(vocab_size, 2) / 1000)


CONFIG_BYTES = 260
# bytes of config.json and the model's head, and of a number among the variables
SCALAR_HEADER_BYTES = 45
# a number, a row, all
QUANTIZED_ELEMENT_BYTES = {"int8": (1, 4, 0), "int16": (2, 0, 4), "bf16": (2, 0, 0),
                           "none": (4, 0, 0)}
UNQUANTIZED_ELEMENT_BYTES = {"bf16": 2}  # a number of what is not quantized; others 4
FORMATS: dict[str, Callable[[Block, Protocol, str], Size]] = {
    "torch": torch_bytes, "ctranslate2": ctranslate2_bytes, "huggingface": huggingface_bytes,
    "onnx": onnx_bytes}
