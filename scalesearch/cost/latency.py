"""Latency of an exported model, predicted from features of its cost breakdown.

A feature sums over the operations of a runtime that decodes one sentence. There are three stages:
``encoder`` (one pass), ``steps`` (all decoding steps) and ``output`` (the output projection).
CTranslate2 features use the variables of its export plan; other formats use the cost lines.

- ``STAGE.products``: matrix products that are started.
- ``STAGE.macs``: multiply-adds of these products; in a decoding step, the weights that it reads.
- ``STAGE.numbers``: numbers that these products read and write.
- ``STAGE.attention``, ``STAGE.scores``: multiply-adds of attention, and its scores.
- ``encoder.bytes``: bytes of the encoder's weights; shared weights count once.
- ``steps.beyond.SIZE``: bytes of weights that do not fit a cache of SIZE bytes and are read again
  in each step. There is one feature per cache size; the fit selects the size of the device.
- ``odd``, ``odd.beyond``: matrices whose rows are not multiples of 32 numbers are slower in
  CTranslate2, mostly if they do not fit the cache. These are their macs, and their share of the
  bytes beyond a cache of 8 MB.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.core import CROSS_MEMORY, SRC, VOCAB, Block, Size, iterate_cost_lines
from scalesearch.blocks.mixture import calls_with_static_shapes
from scalesearch.blocks.seq2seq import EncoderOnly
from scalesearch.blocks.sizes import evaluate_size, maximum
from scalesearch.cost.artifact import QUANTIZED_ELEMENT_BYTES
from scalesearch.cost.latency_model import DecodingSetup, LatencyModel, load_latency_model
from scalesearch.cost.protocol import Protocol, find_protocol, weight_numel
from scalesearch.lowering.ctranslate2 import plan_variables
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.spaces.syntax.diagnostics import UnbuildableError

CONSTANT = "constant"
PRODUCT_FEATURES = ("products", "macs", "numbers")
MILLION = 1_000_000
CACHE_SIZES = tuple(round(MILLION * 2 ** (power / 2)) for power in range(13))  # 1 to 64 MB
SIMD_WIDTH = 32  # numbers per vector register
MIN_ODD_MATRIX_SIZE = 8 * MILLION  # bytes, the cache size of `odd.beyond`
FEATURE_NAMES = (
    CONSTANT,
    *(f"{stage}.{name}" for stage in ("encoder", "steps", "output") for name in PRODUCT_FEATURES),
    *(f"{stage}.{name}" for stage in ("encoder", "steps") for name in ("attention", "scores")),
    "encoder.bytes", *(f"steps.beyond.{cache}" for cache in CACHE_SIZES), "odd", "odd.beyond")
FeatureSums = dict[str, Any]


def predict_latency(block: Block, protocol: Protocol) -> Any:
    """Predict ms per sentence; the result is an array for a population."""
    assert protocol.latency_model_path is not None
    model = load_latency_model(protocol.latency_model_path)
    return model.predict(feature_vector(model, block, protocol))


def latency_interval(block: Block, protocol: Protocol) -> tuple[float, float]:
    """90 % prediction interval of one candidate, in ms per sentence."""
    assert protocol.latency_model_path is not None
    model = load_latency_model(protocol.latency_model_path)
    return model.prediction_interval(feature_vector(model, block, protocol))


def feature_vector(model: LatencyModel, block: Block, protocol: Protocol) -> NDArray[np.float64]:
    """Features of an architecture, (n_features,), or population, (n, n_features)."""
    features = compute_features(block, model.artifact, model.setup, protocol)
    columns = np.broadcast_arrays(*(np.asarray(evaluate_size(features.get(name, 0)), float)
                                    for name in model.features))
    return np.stack(columns, -1)


def compute_features(block: Block, artifact: str, setup: DecodingSetup,
                     protocol: Protocol) -> FeatureSums:
    """Features of an architecture by name; missing features are 0.

    Raises:
        UnbuildableError: the format does not support the architecture, or it is encoder-only.
    """
    if isinstance(block, EncoderOnly):
        raise UnbuildableError("protocol.latency", "the predicted latency is that of generating "
                               "text, and this model is encoder-only")
    sums: FeatureSums = defaultdict(int, {CONSTANT: 1})
    if artifact.startswith("ctranslate2"):
        weights_read = _add_plan_features(sums, block, setup, protocol)
    else:
        weights_read = _add_breakdown_features(sums, block, setup, protocol,
                                               has_static_shapes=artifact.startswith("onnx"))
    weight_bytes, *_ = QUANTIZED_ELEMENT_BYTES[artifact.rpartition("-")[2]]
    once, steps, odd = (number * weight_bytes for number in weights_read)
    beyond = {cache: setup.target * maximum(steps - cache, 0)
              for cache in (*CACHE_SIZES, MIN_ODD_MATRIX_SIZE)}
    return sums | {"encoder.bytes": once,
                   "odd.beyond": beyond[MIN_ODD_MATRIX_SIZE] * (odd / maximum(steps, 1))} | {
        f"steps.beyond.{cache}": beyond[cache] for cache in CACHE_SIZES}


def _add_product(sums: FeatureSums, stage: str, calls: Size, positions: Size,
                 sizes: tuple[Size, ...]) -> None:
    """Add a matrix product of these sizes that is applied to ``positions`` positions."""
    # For a tensor chain only the work is known.
    numbers = positions * sum(sizes) if len(sizes) > 1 else 0
    for name, count in zip(PRODUCT_FEATURES, (calls, positions * math.prod(sizes), numbers)):
        sums[f"{stage}.{name}"] = sums[f"{stage}.{name}"] + count


def _add_plan_features(sums: FeatureSums, block: Block, setup: DecodingSetup,
                       protocol: Protocol) -> tuple[Size, Size, Size]:
    """Add the features of a CTranslate2 plan.

    Returns:
        numbers of weights that are read once, that are read in each step, and that belong to odd
        matrices and are read in each step.
    """
    if reasons := find_unsupported_parts(block):
        raise UnbuildableError("protocol.latency", f"ctranslate2 does not support it: {reasons[0]}")
    plan = plan_variables(block, protocol.shared_vocab)
    source = setup.source
    target = setup.target
    score_pairs = {"encoder": source * source, "self_attention": target * (target + 1) // 2,
                   "attention": source * target}  # (query, key) pairs of each attention
    weights_once: dict[Hashable, Size] = {}
    weights_per_step: dict[Hashable, Size] = {}
    odd: dict[Hashable, Size] = {}
    for variable in plan.variables:
        stack, layer, *part = variable.name.split("/")
        if not variable.is_quantized or layer.startswith("embeddings"):
            continue
        # Cross-attention projects keys and values of the source once.
        is_once = stack == "encoder" or part[:2] == ["attention", "linear_1"]
        stage = "output" if layer == "projection" else "encoder" if is_once else "steps"
        size = math.prod(variable.shape)
        (weights_once if is_once else weights_per_step)[variable.sharing_key] = size
        odd_size = size * (evaluate_size(variable.shape[1]) % SIMD_WIDTH != 0)
        if not is_once:
            odd[variable.sharing_key] = odd_size
        sums["odd"] = sums["odd"] + (source if is_once else target) * odd_size
        _add_product(sums, stage, 1 if is_once else target, source if is_once else target,
                     variable.shape)
        # An output projection has as many columns as all heads' values together.
        if part[:2] in (["self_attention", "linear_1"], ["attention", "linear_2"]):
            pairs = score_pairs[stack if stack == "encoder" else part[0]]
            heads = plan.scalars[f"{stack}/num_heads"]
            sums[f"{stage}.attention"] = sums[f"{stage}.attention"] + 2 * pairs * variable.shape[1]
            sums[f"{stage}.scores"] = sums[f"{stage}.scores"] + pairs * heads
    return sum(weights_once.values()), sum(weights_per_step.values()), sum(odd.values())


def _add_breakdown_features(sums: FeatureSums, block: Block, setup: DecodingSetup,
                            protocol: Protocol, has_static_shapes: bool
                            ) -> tuple[Size, Size, Size]:
    """Add the features of the cost lines.

    With static shapes, all experts of a mixture compute all tokens.

    Returns:
        numbers of weights that are read once and that are read in each step, and 0: odd matrices
        only matter for CTranslate2.
    """
    weights_once: dict[str, Size] = {}
    weights_per_step: dict[str, Size] = {}
    passes = find_protocol("decode", setup.source, setup.target, protocol.vocab)
    for line, static_calls in calls_with_static_shapes(
            iterate_cost_lines(block, vocab=protocol.shared_vocab)):
        calls = static_calls if has_static_shapes else line.calls
        for work in line.loop_nests:
            if work.operation not in ("mac", "mix"):
                continue
            named_axes = [extent for extent in work.loops if isinstance(extent, str)]
            axes = tuple(sorted(axis for axis in named_axes if axis != VOCAB))
            sizes = (*(extent for extent in work.loops if not isinstance(extent, str)),
                     *[protocol.vocab_size] * named_axes.count(VOCAB))
            is_once = bool({SRC, CROSS_MEMORY} & set(axes))
            stage = ("output" if line.path.startswith("output")
                     else "encoder" if is_once else "steps")
            positions = calls * passes.extent(axes)
            if line.weights:
                # Tied weights are read as well, although they have no copy of their own.
                size = sum(maximum(line.weight_copies[name], 1) * weight_numel(shape, protocol)
                           for name, shape in line.weights.items())
                (weights_once if stage == "encoder" else weights_per_step)[line.path] = size
                _add_product(sums, stage, calls * (1 if is_once else setup.target), positions,
                             sizes)
            else:
                sums[f"{stage}.attention"] = sums[f"{stage}.attention"] + positions * math.prod(
                    sizes)
    return sum(weights_once.values()), sum(weights_per_step.values()), 0
