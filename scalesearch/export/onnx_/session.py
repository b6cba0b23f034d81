"""Decoding by onnxruntime: our own searches, with two sessions in place of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from onnxruntime import InferenceSession, OrtValue, SessionOptions
from torch import Tensor

from scalesearch.errors import UserError


def _selected(tensors: Mapping[str, OrtValue], rows: Tensor) -> dict[str, OrtValue]:
    """Rows of each tensor."""
    return {name: OrtValue.from_dlpack(torch.from_dlpack(value).index_select(0, rows))
            for name, value in tensors.items()}


@dataclass(frozen=True)
class OnnxEncoderMemory:
    """What the encoder made of a batch, by name."""

    tensors: Mapping[str, OrtValue]

    def select(self, rows: Tensor) -> OnnxEncoderMemory:
        """The memory of ``rows`` (indices into the batch, repeats allowed)."""
        return OnnxEncoderMemory(_selected(self.tensors, rows))


@dataclass
class OnnxDecodingCache:
    """What steps have kept, by name, and how many positions they have seen."""

    tensors: dict[str, OrtValue] = field(default_factory=dict)
    length: int = 0

    def select(self, rows: Tensor, same_sources: bool = False) -> None:
        """Keep, repeat and reorder rows of the batch."""
        self.tensors = _selected(self.tensors, rows)


class OnnxModel:
    """An exported model, with the interface that :mod:`scalesearch.nn.decode` asks of one.

    Its states are logits.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self.encoder, self.decoder = (_session(folder / f"{name}.onnx", threads)
                                      for name in ("encoder", "decoder"))
        self.encoder_output_names = [output.name for output in self.encoder.get_outputs()]
        self.cache_names = [output.name.removesuffix(".next")
                            for output in self.decoder.get_outputs()[1:]]
        self.input_shapes = {value.name: value.shape for value in self.decoder.get_inputs()}

    def encode(self, source: Tensor) -> OnnxEncoderMemory:
        return OnnxEncoderMemory(
            dict(zip(self.encoder_output_names,
                     _run(self.encoder, {"source": OrtValue.from_dlpack(source)}))))

    def new_cache(self) -> OnnxDecodingCache:
        return OnnxDecodingCache()

    def decode(self, target: Tensor, memory: OnnxEncoderMemory, cache: OnnxDecodingCache) -> Tensor:
        """Logits (batch, 1, V) after the one new token of each row (batch, 1)."""
        if not cache.length:
            sizes = {"batch": len(target), "past": 0}
            empty = {name: [sizes.get(n, n) for n in self.input_shapes[name]]
                     for name in self.cache_names}
            cache.tensors = {name: OrtValue.from_dlpack(torch.zeros(shape))
                             for name, shape in empty.items()}
            if "moved" in memory.tensors:  # a decoder-only model's source, read before the target
                target = torch.cat([torch.from_dlpack(memory.tensors["moved"]), target], 1)
        made = {name: value for name, value in memory.tensors.items() if name in self.input_shapes}
        new = {"tokens": OrtValue.from_dlpack(target.contiguous()),
               "seen": OrtValue.from_dlpack(torch.zeros(cache.length, dtype=torch.long))}
        logits, *kept = _run(self.decoder, {**made, **cache.tensors, **new})
        cache.tensors = dict(zip(self.cache_names, kept))
        cache.length = cache.length + target.shape[1]
        return torch.from_dlpack(logits)[:, None]

    def logits(self, states: Tensor) -> Tensor:
        return states


def _session(file: Path, threads: int) -> InferenceSession:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of many kinds, with nothing but Exception in common
        raise UserError(f"{file}: onnxruntime cannot load it: {' '.join(str(error).split())[:300]}",
                        code="file-damaged") from None


def _run(session: InferenceSession, inputs: Mapping[str, OrtValue]) -> Any:
    """All outputs; nothing is copied on the way in or out."""
    return session.run_with_ort_values(None, inputs)
