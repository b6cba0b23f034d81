"""The format ``onnx``: an encoder and a cached decoding step for onnxruntime, ``graphs`` traced, ``session`` run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.export.base import Decoder, Format

if TYPE_CHECKING:
    from scalesearch.blocks.core import Block
    from scalesearch.train.checkpoint import Checkpoint

WEIGHTS = "weights.bin"
SMALL = 256  # bytes of what stays in a graph: scalars and shapes
ALIGNMENT = 64


class Onnx(Format):
    """``encoder.onnx``, ``decoder.onnx`` and ``weights.bin``, which both read."""

    name = "onnx"
    quantisations = ("none", "int8")
    packages = ("onnx", "onnxscript", "onnxruntime")

    def refusals(self, block: Block) -> list[str]:
        return []  # what PyTorch computes, it can trace

    def write(self, trained: Checkpoint, folder: Path, quantise: str) -> None:
        from scalesearch.export.onnx_.graphs import graphs
        from scalesearch.export.onnx_.quantise import quantise as to_integers

        made = graphs(trained.model)
        for model in made.values() if quantise == "int8" else ():
            to_integers(model)
        save(made, folder)

    def open(self, folder: Path, threads: int) -> Decoder:
        from scalesearch.export.onnx_.session import Sessions
        from scalesearch.export.torch_ import TorchDecoder

        return TorchDecoder(Sessions(folder, threads))


def save(models: dict[str, Any], folder: Path) -> None:
    """Write ``NAME.onnx`` of each model, and their weights to one file, equal ones once."""
    import onnx_ir as ir

    places: dict[bytes, int] = {}
    with (folder / WEIGHTS).open("wb") as file:
        for value in [value for model in models.values() for value in model.graph.initializers.values()]:
            tensor = value.const_value
            if tensor.nbytes > SMALL:
                content = tensor.tobytes()
                if content not in places:
                    places[content] = file.tell()
                    file.write(content + bytes(-len(content) % ALIGNMENT))
                value.const_value = ir.ExternalTensor(WEIGHTS, places[content], tensor.nbytes, tensor.dtype,
                                                      shape=tensor.shape, name=value.name, base_dir=folder)
    for name, model in models.items():
        _strip(model)
        ir.save(model, folder / f"{name}.onnx")


def _strip(model: Any) -> None:
    """Remove what onnxruntime does not read: half of a graph's bytes are names, and shapes that follow from others."""
    ends = {*model.graph.inputs, *model.graph.outputs}
    for value in model.graph.initializers.values():
        value.metadata_props.clear()
        value.shape = value.type = None  # its tensor has them
    for number, node in enumerate(model.graph):
        node.name = None
        for at, value in enumerate(node.outputs):
            if value not in ends:
                value.name, value.shape, value.type = f"{number}.{at}" if at else f"{number}", None, None
