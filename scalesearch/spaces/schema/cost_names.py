"""The names of costs that a constraint or a budget may use."""

from collections.abc import Mapping
from typing import Any

COST_PARTS = ("total", "embedding", "non_embedding", "encoder", "decoder", "output")
TRAINING_COSTS = ("macs.update", "macs.run", "memory.optimizer", "memory.training")
# Costs of a language model with a context of `protocol.length` tokens.
CONTEXT_COSTS = ("macs.prefill", "macs.decode_step")
COST_NAMES = (*(f"{what}.{part}" for what in ("params", "macs", "flops") for part in COST_PARTS),
              "params.active", "params.tables", "macs.once",
              *("memory.weights", "memory.cache", "memory.activations"),
              *TRAINING_COSTS, *CONTEXT_COSTS,
              *("load.mean", "load.balance", "load.min", "load.max"),
              *("artifact.bytes", "latency.predicted", "refusals.ctranslate2"))
BYTE_COSTS = (*(name for name in COST_NAMES if name.startswith("memory.")), "artifact.bytes")
COST_UNITS = {**dict.fromkeys(BYTE_COSTS, "bytes"), "latency.predicted": "ms"}  # of others: counts
DEPRECATED_COST_NAMES = {"artefact.bytes": "artifact.bytes"}
PROTOCOL_NAMES = ("forward", "decode", "decode-uncached", "edgeformer", "delight", "train")
# Keys of a recipe that determine the costs of training, and the sentence pairs of a run.
RUN_LENGTHS = ("steps", "tokens", "pairs")
TRAINING_SIZES = (*RUN_LENGTHS, "max_tokens", "accumulate")
OPTIMIZERS = ("adamw", "muon", "soap")
PROTOCOL_SIZES = ("source", "target", "length", "vocab", "shortlist", *TRAINING_SIZES)
# Export formats, with their quantizations; the size in bytes of all of them can be predicted.
RUNTIMES = (*(f"ctranslate2-{quantization}" for quantization in ("int8", "int16", "bf16", "none")),
            "onnx-int8", "onnx-none")  # for decoding during training: `recipe.decode_with`
ARTIFACT_FORMATS = ("torch", *RUNTIMES, "huggingface-none", "huggingface-bf16")
# Formats without a quantization, with the default of `export`.
DEFAULT_ARTIFACT_FORMATS = {"ctranslate2": "ctranslate2-int8", "onnx": "onnx-none",
                            "huggingface": "huggingface-none"}
# Bytes of a number in the key-value cache, without scales of quantized numbers.
CACHE_TYPES = {"float32": 4, "float16": 2, "bf16": 2, "fp8": 1, "int8": 1}
LATENCY_KEY = "latency"  # protocol.latency: the file of a fit
PROTOCOL_CHOICES = {"name": PROTOCOL_NAMES, "artifact": ARTIFACT_FORMATS, "optimizer": OPTIMIZERS,
                    "cache": tuple(CACHE_TYPES)}
# Cost to the keys of the protocol that it needs. One of the alternatives in a tuple suffices.
PROTOCOL_KEYS_OF_COST: Mapping[str, tuple[str | tuple[str, ...], ...]] = {
    "artifact.bytes": ("artifact",), "latency.predicted": ("latency",),
    "macs.update": ("max_tokens",), "macs.run": ("max_tokens", RUN_LENGTHS),
    "memory.optimizer": ("optimizer",), "memory.training": ("max_tokens", "optimizer"),
    **dict.fromkeys(CONTEXT_COSTS, ("length",))}
# protocol.vocab if each candidate has its own vocabulary: the key `vocab` of the space
OWN_VOCABULARY = "own"


def find_missing_key(cost: str, settings: Mapping[str, Any]) -> str | None:
    """Find a key that ``cost`` needs and that the protocol ``settings`` do not set.

    Alternatives are joined by "or".
    """
    for key in PROTOCOL_KEYS_OF_COST.get(cost, ()):
        alternatives = (key,) if isinstance(key, str) else key
        if all(settings.get(name) is None for name in alternatives):
            return " or ".join(alternatives)
    return None
