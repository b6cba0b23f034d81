"""Latency of an artifact before it is there: features of its bill, and what a fit makes of them.

Features are sums over what a runtime does to decode a sentence, for the encoder's pass, for all
decoding steps and for the output map apart: ``products`` it starts, their ``macs`` (of a step: the
weights that it moves) and ``numbers`` (read and written), multiply-adds of ``attention`` and its
``scores``. Those of CTranslate2 are of the variables that its lowering plans; of other formats of
the ledger. ``bytes`` are of the encoder's weights, shared ones once; those that each step reads
anew cost more where a cache does not hold them, so what is ``beyond`` caches of several sizes is a
feature each, and the fit finds which of them the device has. ``odd`` matrices, whose rows do not
fill vectors of 32 numbers, take CTranslate2 longer, most where they come from beyond a cache: their
macs, and their share of what does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.core import CROSS_MEMORY, SRC, VOCAB, Block, Size, iterate_cost_lines
from scalesearch.blocks.sizes import evaluate_size, maximum
from scalesearch.cost.latency_model import DecodingSetup, LatencyModel, load_latency_model
from scalesearch.cost.protocol import Protocol, find_protocol, weight_numel
from scalesearch.lowering.ctranslate2 import plan_variables
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.space.syntax.diagnostics import UnbuildableError

CONSTANT = "constant"
PRODUCT_FEATURES = ("products", "macs", "numbers")
MILLION = 1_000_000
CACHE_SIZES = tuple(round(MILLION * 2 ** (at / 2)) for at in range(13))  # bytes: 1 to 64 MB
SIMD_WIDTH = 32  # numbers
MIN_ODD_MATRIX_SIZE = 8 * MILLION
ELEMENT_BYTES = {"int8": 1, "int16": 2, "bf16": 2, "none": 4}  # bytes of a weight
FEATURE_NAMES = (
    CONSTANT,
    *(f"{stage}.{what}" for stage in ("encoder", "steps", "output") for what in PRODUCT_FEATURES),
    *(f"{stage}.{what}" for stage in ("encoder", "steps") for what in ("attention", "scores")),
    "encoder.bytes", *(f"steps.beyond.{cache}" for cache in CACHE_SIZES), "odd", "odd.beyond")
FeatureSums = dict[str, Any]


def predict_latency(block: Block, protocol: Protocol) -> Any:
    """ms a sentence that the protocol's fit predicts; an array for a population."""
    assert protocol.latency_model_path is not None
    fit = load_latency_model(protocol.latency_model_path)
    return fit.predict(feature_vector(fit, block, protocol))


def latency_interval(block: Block, protocol: Protocol) -> tuple[float, float]:
    """The fit's 90 % interval for one candidate."""
    assert protocol.latency_model_path is not None
    fit = load_latency_model(protocol.latency_model_path)
    return fit.prediction_interval(feature_vector(fit, block, protocol))


def feature_vector(model: LatencyModel, block: Block, protocol: Protocol) -> NDArray[np.float64]:
    """The fit's features of an architecture, (features,); of a population (candidates, features)."""
    found = compute_features(block, model.artifact, model.setup, protocol)
    columns = np.broadcast_arrays(*(np.asarray(evaluate_size(found.get(name, 0)), float)
                                    for name in model.features))
    return np.stack(columns, -1)


def compute_features(block: Block, artifact: str, setup: DecodingSetup,
                     protocol: Protocol) -> FeatureSums:
    """Features of an architecture by name; what is missing is 0.

    Raises:
        Unbuildable: the format cannot hold it.
    """
    sums: FeatureSums = defaultdict(int, {CONSTANT: 1})
    held = (_add_plan_features if artifact.startswith("ctranslate2")
            else _add_breakdown_features)(sums, block, setup, protocol)
    once, steps, odd = (number * ELEMENT_BYTES[artifact.rpartition("-")[2]] for number in held)
    beyond = {cache: setup.target * maximum(steps - cache, 0)
              for cache in (*CACHE_SIZES, MIN_ODD_MATRIX_SIZE)}
    return sums | {"encoder.bytes": once,
                   "odd.beyond": beyond[MIN_ODD_MATRIX_SIZE] * (odd / maximum(steps, 1))} | {
        f"steps.beyond.{cache}": beyond[cache] for cache in CACHE_SIZES}


def _add_product(sums: FeatureSums, stage: str, calls: Size, positions: Size,
                 sizes: tuple[Size, ...]) -> None:
    """Adds a product of these sizes that is applied to ``positions``, in so many ``calls``."""
    numbers = positions * sum(sizes) if len(sizes) > 1 else 0  # of a chain only the work is known
    for what, count in zip(PRODUCT_FEATURES, (calls, positions * math.prod(sizes), numbers)):
        sums[f"{stage}.{what}"] = sums[f"{stage}.{what}"] + count


def _add_plan_features(sums: FeatureSums, block: Block, setup: DecodingSetup,
                       protocol: Protocol) -> tuple[Size, Size, Size]:
    """Adds what the plan does; weights that are read once, at each step, and those of odd matrices at each step."""
    if reasons := find_unsupported_parts(block):
        raise UnbuildableError("protocol.latency", f"ctranslate2 cannot hold it: {reasons[0]}")
    made = plan_variables(block, protocol.shared_vocab)
    source = setup.source
    target = setup.target
    seen = {"encoder": source * source, "self_attention": target * (target + 1) // 2,
            "attention": source * target}
    held: dict[bool, dict[Hashable, Size]] = {True: {}, False: {}}
    odd: dict[Hashable, Size] = {}
    for variable in made.variables:
        stack, layer, *rest = variable.name.split("/")
        if not variable.is_quantized or layer.startswith("embeddings"):
            continue
        # keys and values of the source
        once = stack == "encoder" or rest[:2] == ["attention", "linear_1"]
        stage = "output" if layer == "projection" else "encoder" if once else "steps"
        held[once][variable.sharing_key] = size = math.prod(variable.shape)
        part = size * (evaluate_size(variable.shape[1]) % SIMD_WIDTH != 0)
        if not once:
            odd[variable.sharing_key] = part
        sums["odd"] = sums["odd"] + (source if once else target) * part
        _add_product(sums, stage, 1 if once else target, source if once else target, variable.shape)
        # an output map, as wide as values
        if rest[:2] in (["self_attention", "linear_1"], ["attention", "linear_2"]):
            pairs = seen[stack if stack == "encoder" else rest[0]]
            heads = made.scalars[f"{stack}/num_heads"]
            sums[f"{stage}.attention"] = sums[f"{stage}.attention"] + 2 * pairs * variable.shape[1]
            sums[f"{stage}.scores"] = sums[f"{stage}.scores"] + pairs * heads
    return sum(held[True].values()), sum(held[False].values()), sum(odd.values())


def _add_breakdown_features(sums: FeatureSums, block: Block, setup: DecodingSetup,
                            protocol: Protocol) -> tuple[Size, Size, Size]:
    """Adds what the ledger does; weights that are read once, and at each step; none is known to be odd."""
    held: dict[bool, dict[str, Size]] = {True: {}, False: {}}
    passes = find_protocol("decode", setup.source, setup.target, protocol.vocab)
    for line in iterate_cost_lines(block, vocab=protocol.shared_vocab):
        for work in line.loop_nests:
            if work.operation not in ("mac", "mix"):
                continue
            named = [extent for extent in work.loops if isinstance(extent, str)]
            axes = tuple(sorted(axis for axis in named if axis != VOCAB))
            sizes = (*(extent for extent in work.loops if not isinstance(extent, str)),
                     *[protocol.vocab_size] * named.count(VOCAB))
            once = bool({SRC, CROSS_MEMORY} & set(axes))
            stage = "output" if line.path.startswith("output") else "encoder" if once else "steps"
            positions = line.calls * passes.extent(axes)
            if line.weights:
                held[stage == "encoder"][line.path] = sum(  # what is lent or tied is read too
                    maximum(line.weight_copies[name], 1) * weight_numel(shape, protocol)
                    for name, shape in line.weights.items())
                _add_product(sums, stage, line.calls * (1 if once else setup.target), positions,
                             sizes)
            else:
                sums[f"{stage}.attention"] = sums[f"{stage}.attention"] + positions * math.prod(
                    sizes)
    return sum(held[True].values()), sum(held[False].values()), 0
