"""The names of costs that a constraint or a budget may use."""

PARTS = ("total", "embedding", "non_embedding", "encoder", "decoder", "output")
COST_NAMES = (*(f"{what}.{part}" for what in ("params", "macs", "flops") for part in PARTS),
              *("memory.weights", "memory.cache", "memory.activations"),
              *("load.mean", "load.balance", "load.min", "load.max"),
              *("artefact.bytes", "latency.predicted", "refusals.ctranslate2"))
PROTOCOL_NAMES = ("forward", "decode", "decode-uncached", "edgeformer", "delight")
PROTOCOL_SIZES = ("source", "target", "vocab")
# Formats, with their quantisations, whose bytes can be foretold: all of them.
RUNTIMES = (*(f"ctranslate2-{quantisation}" for quantisation in ("int8", "int16", "bf16", "none")),
            "onnx-int8", "onnx-none")  # that decode in a training's place: `recipe.decode_with`
ARTEFACTS = ("torch", *RUNTIMES, "huggingface-none", "huggingface-bf16")
LATENCY = "latency"  # protocol.latency: the file of a fit
PROTOCOL_WORDS = {"name": PROTOCOL_NAMES, "artefact": ARTEFACTS}
OF_PROTOCOL = {"artefact.bytes": "artefact", "latency.predicted": "latency"}  # cost to the key that it needs there
OWN = "own"  # protocol.vocab where each candidate has a vocabulary of its own: the key `vocab` of the space
