"""Export format ``onnx``: graphs of the encoder and of a cached decoding step.

``graphs`` traces them, ``quantize`` converts weights to int8, and ``session`` runs them with
onnxruntime.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.export.base import ArtifactDecoder, ExportFormat

if TYPE_CHECKING:
    from scalesearch.training.checkpoint import Checkpoint

WEIGHTS_FILE = "weights.bin"
MAX_INLINE_BYTES = 256  # larger tensors go to the weights file; scalars and shapes stay inline
ALIGNMENT = 64  # bytes


class OnnxFormat(ExportFormat):
    """``encoder.onnx`` and ``decoder.onnx``, which share ``weights.bin``."""

    name = "onnx"
    quantizations = ("none", "int8")
    opsets = (20, 18, 19, 21, 22)
    opset = 20
    packages = ("onnx", "onnxscript", "onnxruntime")
    runtime = "onnxruntime"

    def write(self, trained: Checkpoint, folder: Path, quantization: str) -> None:
        from scalesearch.export.onnx_.graphs import build_graphs
        from scalesearch.export.onnx_.quantize import quantize_model

        graphs = build_graphs(trained.model, self.opset)
        if quantization == "int8":
            for model in graphs.values():
                quantize_model(model)
        save_graphs(graphs, folder)

    def open_decoder(self, folder: Path, threads: int) -> ArtifactDecoder:
        from scalesearch.export.onnx_.session import OnnxModel
        from scalesearch.export.torch_ import TorchDecoder

        return TorchDecoder(OnnxModel(folder, threads))


def save_graphs(models: dict[str, Any], folder: Path) -> None:
    """Write ``NAME.onnx`` per model, and one file of their weights without duplicates."""
    import onnx_ir as ir

    offsets: dict[bytes, int] = {}
    with (folder / WEIGHTS_FILE).open("wb") as file:
        for value in [value for model in models.values()
                      for value in model.graph.initializers.values()]:
            tensor = value.const_value
            if tensor.nbytes > MAX_INLINE_BYTES:
                content = tensor.tobytes()
                if content not in offsets:
                    offsets[content] = file.tell()
                    file.write(content + bytes(-len(content) % ALIGNMENT))
                value.const_value = ir.ExternalTensor(
                    WEIGHTS_FILE, offsets[content], tensor.nbytes, tensor.dtype, shape=tensor.shape,
                    name=value.name, base_dir=folder)
    for name, model in models.items():
        # Names and shapes that onnxruntime does not need are half of a file.
        interface = {*model.graph.inputs, *model.graph.outputs}
        for value in model.graph.initializers.values():
            value.metadata_props.clear()
            value.shape = value.type = None  # the tensor holds them
        for number, node in enumerate(model.graph):
            node.name = None
            for index, value in enumerate(node.outputs):
                if value not in interface:
                    value.name = f"{number}.{index}" if index else f"{number}"
                    value.shape = value.type = None
        ir.save(model, folder / f"{name}.onnx")
