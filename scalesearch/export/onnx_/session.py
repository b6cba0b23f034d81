"""Decoding with onnxruntime: two sessions with the interface of a model.

The searches of :mod:`scalesearch.nn` run on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from onnxruntime import InferenceSession, OrtValue, SessionOptions
from torch import Tensor

from scalesearch.errors import UserError


def _select_rows(tensors: Mapping[str, OrtValue], rows: Tensor) -> dict[str, OrtValue]:
    """Select ``rows`` (indices into the batch) of each tensor."""
    return {name: OrtValue.from_dlpack(torch.from_dlpack(value).index_select(0, rows))
            for name, value in tensors.items()}


@dataclass(frozen=True)
class OnnxEncoderMemory:
    """Outputs of the encoder for a batch, by name."""

    tensors: Mapping[str, OrtValue]

    def select(self, rows: Tensor) -> OnnxEncoderMemory:
        """Select ``rows`` (indices into the batch, repeats allowed)."""
        return OnnxEncoderMemory(_select_rows(self.tensors, rows))


@dataclass
class OnnxDecodingCache:
    """Cached tensors by name, and the number of decoded positions of the target."""

    tensors: dict[str, OrtValue] = field(default_factory=dict)
    length: int = 0

    def select(self, rows: Tensor, same_sources: bool = False) -> None:
        """Select, repeat and reorder rows of the batch."""
        self.tensors = _select_rows(self.tensors, rows)


class OnnxModel:
    """An exported model with the interface that :mod:`scalesearch.nn.decode` expects.

    Its decoder states are the logits.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        options = SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        sessions = []
        for file in (folder / "encoder.onnx", folder / "decoder.onnx"):
            try:
                sessions.append(InferenceSession(file, options, providers=["CPUExecutionProvider"]))
            except Exception as error:  # the exceptions have no other common base class
                raise UserError(f"{file}: onnxruntime cannot load it: "
                                f"{' '.join(str(error).split())[:300]}",
                                code="file-damaged") from None
        self.encoder, self.decoder = sessions
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
        """Compute logits (batch, 1, V) after the new tokens ``target`` (batch, T).

        T is 1, except in the first call of a decoder-only model.
        """
        moved = memory.tensors.get("moved")  # a decoder-only model's source
        source = None if moved is None else torch.from_dlpack(moved)
        past = cache.length
        tokens = target
        if past:
            past += 0 if source is None else source.shape[1]
        else:
            sizes = {"batch": len(target), "past": 0}
            empty = {name: [sizes.get(n, n) for n in self.input_shapes[name]]
                     for name in self.cache_names}
            cache.tensors = {name: OrtValue.from_dlpack(torch.zeros(shape))
                             for name, shape in empty.items()}
            if source is not None:
                tokens = torch.cat([source, target], 1)
        memory_inputs = {name: value for name, value in memory.tensors.items()
                         if name in self.input_shapes}
        new = {"tokens": OrtValue.from_dlpack(tokens.contiguous()),
               "seen": OrtValue.from_dlpack(torch.zeros(past, dtype=torch.long))}
        logits, *cached = _run(self.decoder, {**memory_inputs, **cache.tensors, **new})
        cache.tensors = dict(zip(self.cache_names, cached))
        cache.length = cache.length + target.shape[1]
        return torch.from_dlpack(logits)[:, None]

    def logits(self, states: Tensor) -> Tensor:
        return states

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute logits (batch, T, V) after each token of ``target`` (batch, T), step by step."""
        memory = self.encode(source)
        cache = self.new_cache()
        return torch.cat([self.decode(token[:, None], memory, cache)
                          for token in target.unbind(1)], 1)


def _run(session: InferenceSession, inputs: Mapping[str, OrtValue]) -> Any:
    """Run a session and return all outputs, without copies of inputs or outputs."""
    return session.run_with_ort_values(None, inputs)
