"""Export formats by name; a format is imported when it is used."""

from __future__ import annotations

import importlib

from scalesearch.errors import UserError, option
from scalesearch.export.base import ExportFormat

FORMAT_CLASSES = {
    "ctranslate2": "scalesearch.export.ctranslate2_:CTranslate2Format",
    "torch": "scalesearch.export.torch_:TorchFormat",
    "huggingface": "scalesearch.export.huggingface.format:HuggingFaceFormat",
    "onnx": "scalesearch.export.onnx_:OnnxFormat",
}


def get_format(name: str) -> ExportFormat:
    """Return the format ``name``. Raises UserError if it does not exist."""
    if name not in FORMAT_CLASSES:
        raise UserError(f"format {name} does not exist; available: "
                        f"{', '.join(FORMAT_CLASSES)}", code="unknown-format")
    module, _, class_name = FORMAT_CLASSES[name].partition(":")
    format: ExportFormat = getattr(importlib.import_module(module), class_name)()
    return format


def resolve_quantization(format: ExportFormat, quantization: str | None) -> str:
    """Return the requested quantization, or the default of the format.

    Raises UserError if the format does not have the quantization.
    """
    if quantization not in (None, *format.quantizations):
        raise UserError(f"{option('quantize', quantization)}: {format.name} supports "
                        f"{', '.join(format.quantizations)}", code="unknown-quantization")
    return quantization or format.quantizations[0]


def check_exportable(format: ExportFormat, block: object, quantization: str) -> None:
    """Check that ``format`` can hold an architecture.

    Raises UserError with every reason, and the formats that can hold it.
    """
    resolve_quantization(format, quantization)
    if reasons := format.unsupported_reasons(block):  # type: ignore[arg-type]
        others = [name for name in FORMAT_CLASSES if name != format.name
                  and not get_format(name).unsupported_reasons(block)]  # type: ignore[arg-type]
        listed = "".join(f"\n  {reason}" for reason in reasons)
        raise UserError(f"{option('to', format.name)} cannot hold this architecture:{listed}\n"
                        f"These formats can: {', '.join(others)}", code="not-exportable")
