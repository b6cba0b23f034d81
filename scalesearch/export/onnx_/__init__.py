"""The format ``onnx``: an encoder and a cached decoding step for onnxruntime, ``graphs`` traced, ``session`` run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.export.base import ArtifactDecoder, ExportFormat

if TYPE_CHECKING:
    from scalesearch.blocks.core import Block
    from scalesearch.train.checkpoint import Checkpoint

WEIGHTS_FILE = "weights.bin"
MAX_INLINE_BYTES = 256  # bytes of what stays in a graph: scalars and shapes
ALIGNMENT = 64


class OnnxFormat(ExportFormat):
    """``encoder.onnx``, ``decoder.onnx`` and ``weights.bin``, which both read."""

    name = "onnx"
    quantizations = ("none", "int8")
    packages = ("onnx", "onnxscript", "onnxruntime")

    def unsupported_reasons(self, block: Block) -> list[str]:
        return []  # what PyTorch computes, it can trace

    def write(self, trained: Checkpoint, folder: Path, quantization: str) -> None:
        from scalesearch.export.onnx_.graphs import build_graphs
        from scalesearch.export.onnx_.quantize import quantize_model as to_integers

        made = build_graphs(trained.model)
        for model in made.values() if quantization == "int8" else ():
            to_integers(model)
        save_graphs(made, folder)

    def open_decoder(self, folder: Path, threads: int) -> ArtifactDecoder:
        from scalesearch.export.onnx_.session import OnnxModel
        from scalesearch.export.torch_ import TorchDecoder

        return TorchDecoder(OnnxModel(folder, threads))


def save_graphs(models: dict[str, Any], folder: Path) -> None:
    """Write ``NAME.onnx`` of each model, and their weights to one file, equal ones once."""
    import onnx_ir as ir

    places: dict[bytes, int] = {}
    with (folder / WEIGHTS_FILE).open("wb") as file:
        for value in [value for model in models.values()
                      for value in model.graph.initializers.values()]:
            tensor = value.const_value
            if tensor.nbytes > MAX_INLINE_BYTES:
                content = tensor.tobytes()
                if content not in places:
                    places[content] = file.tell()
                    file.write(content + bytes(-len(content) % ALIGNMENT))
                value.const_value = ir.ExternalTensor(
                    WEIGHTS_FILE, places[content], tensor.nbytes, tensor.dtype, shape=tensor.shape,
                    name=value.name, base_dir=folder)
    for name, model in models.items():
        _strip_metadata(model)
        ir.save(model, folder / f"{name}.onnx")


def _strip_metadata(model: Any) -> None:
    """Remove what onnxruntime does not read: half of a graph's bytes are names, and shapes that follow from others."""
    ends = {*model.graph.inputs, *model.graph.outputs}
    for value in model.graph.initializers.values():
        value.metadata_props.clear()
        value.shape = value.type = None  # its tensor has them
    for number, node in enumerate(model.graph):
        node.name = None
        for at, value in enumerate(node.outputs):
            if value not in ends:
                value.name = f"{number}.{at}" if at else f"{number}"
                value.shape = None
                value.type = None
