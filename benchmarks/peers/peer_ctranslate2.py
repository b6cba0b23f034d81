"""CTranslate2 4.8.5, a decoder of trained models: the weights as its specification, decoded by its ``Translator``."""

from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec

SPECIAL = ["<blank>", "<unk>", "<s>", "</s>"]


class System:
    """``precision`` of the job is a compute type: float32, bfloat16 or int8_float32."""

    def __init__(self, job: dict[str, Any]) -> None:
        folder = Path(job["folder"], "ctranslate2")
        self.job = job
        if not (folder / "model.bin").exists():
            _save(job, folder)
        self.translator = ctranslate2.Translator(
            str(folder), compute_type=job["precision"], intra_threads=1)
        self.sources = [[*line.split(), "</s>"]
                        for line in Path(job["folder"], "sources").read_text().splitlines()]

    def decode(self, beam: int) -> list[int]:
        """Tokens of each translation."""
        length = self.job["length"]
        results = self.translator.translate_batch(
            self.sources, max_batch_size=self.job["batch"], beam_size=beam, min_decoding_length=length,
            max_decoding_length=length)  # fmt: skip
        return [len(result.hypotheses[0]) for result in results]


def _save(job: dict[str, Any], folder: Path) -> None:
    weights = dict(np.load(Path(job["folder"], "weights.npz")))
    spec = TransformerSpec.from_config((job["depth"], job["depth"]), job["heads"], pre_norm=True)
    words = SPECIAL + Path(job["folder"],
                           "vocabulary").read_text().split("\n")[: len(weights["table"]) - 4]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    for stack, side in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        _fill(stack, side, weights)
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def _fill(stack: Any, side: str, weights: dict[str, Any]) -> None:
    """One stack: its embedding, layers and last norm; the decoder's output too."""
    embeddings = stack.embeddings[0] if side == "encoder" else stack.embeddings
    embeddings.weight = weights["table"]
    stack.scale_embeddings = True
    stack.position_encodings.encodings = weights["positions"]
    _norm(stack.layer_norm, f"{side}.norm", weights)
    for index, layer in enumerate(stack.layer):
        here = f"{side}.layers.{index}"
        own = "attention" if side == "encoder" else "self_attention"
        _attention(layer.self_attention, f"{here}.{own}", weights, (("query", "key", "value"),))
        if side == "decoder":
            _attention(layer.attention, f"{here}.cross_attention", weights,
                       (("query",), ("key", "value")))
        _norm(layer.ffn.layer_norm, f"{here}.ffn_norm", weights)
        for spec, name in ((layer.ffn.linear_0, "up"), (layer.ffn.linear_1, "down")):
            _linear(spec, [f"{here}.ffn.{name}"], weights)
    if side == "decoder":
        stack.projection.weight = weights["table"]


def _attention(spec: Any, path: str, weights: dict[str, Any],
               groups: tuple[tuple[str, ...], ...]) -> None:
    _norm(spec.layer_norm, f"{path}_norm", weights)
    for linear, group in zip(spec.linear, (*groups, ("out",)), strict=True):
        _linear(linear, [f"{path}.{name}" for name in group], weights)


def _linear(spec: Any, paths: list[str], weights: dict[str, Any]) -> None:
    spec.weight = np.concatenate([weights[f"{path}.weight"] for path in paths])
    spec.bias = np.concatenate([weights[f"{path}.bias"] for path in paths])


def _norm(spec: Any, path: str, weights: dict[str, Any]) -> None:
    spec.gamma = weights[f"{path}.weight"]
    spec.beta = weights[f"{path}.bias"]
