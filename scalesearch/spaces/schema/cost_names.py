"""The names of costs that a constraint or a budget may use."""

COST_PARTS = ("total", "embedding", "non_embedding", "encoder", "decoder", "output")
COST_NAMES = (*(f"{what}.{part}" for what in ("params", "macs", "flops") for part in COST_PARTS),
              *("memory.weights", "memory.cache", "memory.activations"),
              *("load.mean", "load.balance", "load.min", "load.max"),
              *("artifact.bytes", "latency.predicted", "refusals.ctranslate2"))
DEPRECATED_COST_NAMES = {"artefact.bytes": "artifact.bytes"}
PROTOCOL_NAMES = ("forward", "decode", "decode-uncached", "edgeformer", "delight")
PROTOCOL_SIZES = ("source", "target", "vocab")
# Export formats, with their quantizations; the size in bytes of all of them can be predicted.
RUNTIMES = (*(f"ctranslate2-{quantization}" for quantization in ("int8", "int16", "bf16", "none")),
            "onnx-int8", "onnx-none")  # for decoding during training: `recipe.decode_with`
ARTIFACT_FORMATS = ("torch", *RUNTIMES, "huggingface-none", "huggingface-bf16")
LATENCY_KEY = "latency"  # protocol.latency: the file of a fit
PROTOCOL_CHOICES = {"name": PROTOCOL_NAMES, "artifact": ARTIFACT_FORMATS}
# cost to the key of the protocol that it needs
PROTOCOL_KEY_OF_COST = {"artifact.bytes": "artifact", "latency.predicted": "latency"}
# protocol.vocab if each candidate has its own vocabulary: the key `vocab` of the space
OWN_VOCABULARY = "own"
