"""Bytes of an exported model: weights, quantization scales and vocabulary.

Shared weights count once. Weights and scales are exact. File headers, graphs, code and the text of
the vocabulary are estimated; for models of at least one million weights the error is below 1 % of
the total; files for other vocabularies than those of the fits differ more. Files that are only
copied are not counted: the training record, and the tokenizer if the format has its own vocabulary
(:func:`tokenizer_bytes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

from scalesearch.blocks.core import Block, Size, iterate_cost_lines
from scalesearch.blocks.leaves import Embedding, Linear, PositionTable
from scalesearch.blocks.maps.tensor_chains import ChainLinearBase
from scalesearch.blocks.mixers.scores import RelativeKeys
from scalesearch.blocks.mixture import calls_with_static_shapes
from scalesearch.blocks.seq2seq import EncoderDecoder, EncoderOnly
from scalesearch.blocks.sizes import map_values, select_where
from scalesearch.cost.protocol import Protocol, weight_numel
from scalesearch.cost.training import FLOAT32_BYTES
from scalesearch.lowering.ctranslate2 import plan_variables, vocabulary_size
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.spaces.syntax.diagnostics import UnbuildableError

# Mean length of a vocabulary entry. Fitted to sentencepiece BPE models with 1,000 to 8,000 pieces
# (Multi30k En-De and the built-in corpus); the error is at most 3 %.
PIECE_BYTES_AT_1000 = 4.74
PIECE_BYTES_PER_DOUBLING = 0.83
PIECE_HEADER_BYTES = 9.05  # score and lengths of a piece in a sentencepiece model
TENSOR_HEADER_BYTES = 75  # header of a tensor in a safetensors file, without its name
# Code, settings and model card of a Hugging Face export. Fitted to the code of 62 random
# configurations of the shipped spaces: the error is 4 kB (root mean square), at most 11 kB.
BUNDLED_CODE_BYTES = 111000
CODE_BYTES_PER_LEAF_TYPE = 2610  # more code for each class of leaf block
# Bytes of both ONNX graphs. Fitted to 50 random configurations, ten each from the spaces `papers`,
# `edgeformer`, `transformer`, `slim` and `edge`, in float and int8. Leave-one-out error: 6 % in the
# mean, 3 % in the median, at most 36 %.
ONNX_GRAPH_BYTES = 2239  # of every model
ONNX_WEIGHT_ENTRY_BYTES = 73
ONNX_INTEGER_MATMUL_BYTES = 190
ONNX_LEAF_BYTES = 983  # per call of a leaf block
ONNX_CHAIN_CORE_BYTES = 3933  # per call of a tensor chain that is applied core by core
ONNX_LEAF_BYTES_BY_CLASS = {"AdaptiveEmbedding": 0, "UnsavedLinear": 247, "Attention": 776,
                            "ChainEmbedding": 8160, "Convolution": 1731, "DecoderOnly": 1858,
                            "Embedding": 0, "FusedAttention": 1535, "GEGLU": 0, "HeadMixing": 1502,
                            "KeyValueCache": 940, "LayerNorm": 0, "Linear": 193, "MatMul": 43,
                            "PartialFFN": 0, "PositionTable": 178, "RelativeKeys": 326,
                            "StateCache": 0, "ExplicitAttention": 0, "SelfGated": 0,
                            "SoftPOS": 0, "SwiGLU": 907}
QUANTIZED_LEAF_TYPES = (Linear, Embedding, PositionTable, RelativeKeys)  # by ONNX in int8
MIN_QUANTIZED_SIZE = 1024  # smaller matrices stay in float32


def artifact_bytes(block: Block, protocol: Protocol) -> Size:
    """Bytes of the exported model in the format ``protocol.artifact``.

    The format is a name and a quantization, for example ``ctranslate2-int8``.

    Raises:
        UnbuildableError: the format does not support this architecture.
    """
    assert protocol.artifact is not None
    name, _, quantization = protocol.artifact.partition("-")
    if isinstance(block, EncoderOnly) and name != "torch":
        raise UnbuildableError("protocol.artifact", f"{name} holds models that generate text, and "
                               "this one is encoder-only; torch supports it")
    return FORMATS[name](block, protocol, quantization or "none")


def torch_bytes(block: Block, protocol: Protocol, quantization: str) -> Size:
    """Bytes of ``model.safetensors`` in float32 and of ``tokenizer.model``."""
    return _safetensors(block, protocol, FLOAT32_BYTES, 0) + tokenizer_bytes(block, protocol)


def tokenizer_bytes(block: Block, protocol: Protocol) -> Size:
    """Bytes of ``tokenizer.model``, which the folder of every format contains."""
    return _vocabulary_bytes(block, protocol,
                             lambda size: mean_piece_bytes(size) + PIECE_HEADER_BYTES)


def _safetensors(block: Block, protocol: Protocol, bytes_per_number: int, prefix: int) -> Size:
    """Bytes of a safetensors file.

    Args:
        bytes_per_number: bytes per weight.
        prefix: length of the prefix that the file adds to the names of weights.
    """
    total: Size = 8
    for line in iterate_cost_lines(block, vocab=protocol.shared_vocab):
        for name, shape in line.weights.items():
            head = TENSOR_HEADER_BYTES + prefix + len(line.path) + len(name)
            total = total + line.weight_copies[name] * (
                bytes_per_number * weight_numel(shape, protocol) + head)
    return total


def huggingface_bytes(block: Block, protocol: Protocol, quantization: str) -> Size:
    """Bytes of weights, ``tokenizer.json``, code, settings and model card.

    The size of the code is estimated from the number of classes of leaf blocks.
    """
    leaf_types = {type(line.block)
                  for line in iterate_cost_lines(block, vocab=protocol.shared_vocab)}
    weights = _safetensors(
        block, protocol, UNQUANTIZED_ELEMENT_BYTES.get(quantization, FLOAT32_BYTES), len("model."))
    return weights + BUNDLED_CODE_BYTES + CODE_BYTES_PER_LEAF_TYPE * len(
        leaf_types) + _vocabulary_bytes(
        block, protocol, tokenizer_json_entry_bytes)


def tokenizer_json_entry_bytes(vocab_size: int) -> float:
    """Mean bytes of an entry of ``tokenizer.json``, including its merges."""
    return 28.5 + 4.4 * math.log2(max(vocab_size, 10) / 1000)


def onnx_bytes(block: Block, protocol: Protocol, quantization: str) -> Size:
    """Bytes of ``weights.bin`` and of both graphs.

    The size of the graphs is estimated from the calls of leaf blocks and the number of weights.
    """
    total: Size = ONNX_GRAPH_BYTES
    for line, calls in calls_with_static_shapes(
            iterate_cost_lines(block, vocab=protocol.shared_vocab)):
        total = total + calls * (
            select_where(line.block.applies_cores, ONNX_CHAIN_CORE_BYTES, ONNX_LEAF_BYTES)
            if isinstance(line.block, ChainLinearBase)
            else ONNX_LEAF_BYTES_BY_CLASS.get(type(line.block).__name__, ONNX_LEAF_BYTES))
        for name, shape in line.weights.items():
            size = weight_numel(shape, protocol)
            stored = _aligned_bytes(size, FLOAT32_BYTES)
            if quantization == "int8" and len(shape) == 2 and isinstance(
                    line.block, QUANTIZED_LEAF_TYPES):
                scales = _aligned_bytes(weight_numel(shape[:1], protocol), FLOAT32_BYTES)
                integers = size >= MIN_QUANTIZED_SIZE
                stored = select_where(integers, _aligned_bytes(size, 1) + scales, stored)
                total = total + select_where(integers, calls * ONNX_INTEGER_MATMUL_BYTES, 0)
            total = total + line.weight_copies[name] * (stored + ONNX_WEIGHT_ENTRY_BYTES)
    return total


def _aligned_bytes(size: Size, bytes_per_number: int) -> Size:
    """Bytes of ``size`` numbers, padded to a multiple of 64; small tensors are inside the graph."""
    def padded(numbers: int) -> int:
        stored = numbers * bytes_per_number
        return stored + -stored % 64 if stored > 256 else stored

    total: Size = map_values(size, padded)
    return total


def _vocabulary_bytes(block: Block, protocol: Protocol,
                      entry_bytes: Callable[[int], float]) -> Size:
    """Bytes of vocabulary files, from the mean bytes of an entry.

    A target vocabulary of the same size as that of the source counts as the same vocabulary.
    """
    def file_bytes(vocab: Size) -> Any:
        return map_values(vocab, lambda size: round(size * entry_bytes(size)))

    total: Size = file_bytes(protocol.vocab_size)
    if isinstance(block, EncoderDecoder):
        source, target = (vocabulary_size(side, protocol.vocab_size)
                          for side in (block.embedding.source, block.embedding.target))
        total = total + file_bytes(select_where(source != target, target, 0))
    return total


def mean_piece_bytes(vocab_size: int) -> float:
    """Mean bytes of the text of a vocabulary entry."""
    return PIECE_BYTES_AT_1000 + PIECE_BYTES_PER_DOUBLING * math.log2(max(vocab_size, 2) / 1000)


def ctranslate2_bytes(block: Block, protocol: Protocol, quantization: str) -> Size:
    """Bytes of ``model.bin``, ``config.json`` and the vocabulary.

    See :class:`scalesearch.lowering.ctranslate2.VariablePlan` for the variables of ``model.bin``.
    """
    if reasons := find_unsupported_parts(block):
        raise UnbuildableError("protocol.artifact",
                               f"ctranslate2 does not support it: {reasons[0]}")
    plan = plan_variables(block, protocol.shared_vocab, protocol.max_source_length)
    total: Size = CONFIG_BYTES + len(plan.scalars) * SCALAR_HEADER_BYTES
    stored: dict[Hashable, str] = {}
    for variable in sorted(plan.variables, key=lambda variable: variable.name):
        shape = variable.shape
        first = stored.setdefault((len(variable.shape), variable.sharing_key), variable.name)
        if first != variable.name:  # only a reference to the first variable is stored
            total = total + len(variable.name) + len(first) + 6
            continue
        per_number, per_row, per_matrix = (
            QUANTIZED_ELEMENT_BYTES[quantization] if variable.is_quantized
            else (UNQUANTIZED_ELEMENT_BYTES.get(quantization, 4), 0, 0))
        head = len(variable.name) + 8 + 4 * len(shape) + (
            len(variable.name) + 20) * bool(per_row or per_matrix)
        total = total + math.prod(shape) * per_number + shape[0] * per_row + per_matrix + head
    return total + _vocabulary_bytes(
        block, protocol, lambda size: mean_piece_bytes(size) + json_piece_overhead_bytes(size))


def json_piece_overhead_bytes(vocab_size: int) -> float:
    """Mean bytes that JSON adds to a vocabulary entry: quotes, escapes, line break."""
    return 7.64 + 0.23 * math.log2(max(vocab_size, 2) / 1000)


CONFIG_BYTES = 260  # config.json and the header of model.bin
SCALAR_HEADER_BYTES = 45  # a scalar variable
# Quantization to bytes per number, per row (scales) and per matrix.
QUANTIZED_ELEMENT_BYTES = {"int8": (1, 4, 0), "int16": (2, 0, 4), "bf16": (2, 0, 0),
                           "none": (4, 0, 0)}
UNQUANTIZED_ELEMENT_BYTES = {"bf16": 2}  # 4 for other quantizations
FORMATS: dict[str, Callable[[Block, Protocol, str], Size]] = {
    "torch": torch_bytes, "ctranslate2": ctranslate2_bytes, "huggingface": huggingface_bytes,
    "onnx": onnx_bytes}
