"""The formats of artifacts by name, imported when they are asked for."""

from __future__ import annotations

import importlib

from scalesearch.errors import UserError
from scalesearch.export.base import ExportFormat

FORMAT_CLASSES = {
    "ctranslate2": "scalesearch.export.ctranslate2_:CTranslate2Format",
    "torch": "scalesearch.export.torch_:TorchFormat",
    "huggingface": "scalesearch.export.huggingface.format:HuggingFaceFormat",
    "onnx": "scalesearch.export.onnx_:OnnxFormat",
}


def get_format(name: str) -> ExportFormat:
    """The format ``name``. Raises UserError where there is none."""
    if name not in FORMAT_CLASSES:
        raise UserError(f"format {name}: there are {', '.join(FORMAT_CLASSES)}",
                        code="unknown-format")
    module, _, kind = FORMAT_CLASSES[name].partition(":")
    found: ExportFormat = getattr(importlib.import_module(module), kind)()
    return found


def resolve_quantization(format: ExportFormat, quantization: str | None) -> str:
    """The quantization that is asked for, or the format's first.

    Raises UserError where the format has not that one.
    """
    if quantization not in (None, *format.quantizations):
        raise UserError(f"--quantize {quantization}: {format.name} has "
                        f"{', '.join(format.quantizations)}", code="unknown-quantization")
    return quantization or format.quantizations[0]


def check_exportable(format: ExportFormat, block: object, quantization: str) -> None:
    """Checks that ``format`` can hold an architecture.

    Raises UserError with every reason, and formats that can.
    """
    resolve_quantization(format, quantization)
    if reasons := format.unsupported_reasons(block):  # type: ignore[arg-type]
        others = [name for name in FORMAT_CLASSES if name != format.name and not get_format(name).unsupported_reasons(block)]  # type: ignore[arg-type]  # noqa: E501
        listed = "".join(f"\n  {reason}" for reason in reasons)
        raise UserError(f"--to {format.name} cannot hold this architecture:{listed}\nThese formats "
                        f"can: {', '.join(others)}", code="not-exportable")
