"""The formats of artefacts by name, imported when they are asked for."""

from __future__ import annotations

import importlib

from scalesearch.errors import UserError
from scalesearch.export.base import Format

FORMATS = {
    "ctranslate2": "scalesearch.export.ctranslate2_:CTranslate2",
    "torch": "scalesearch.export.torch_:Torch",
    "huggingface": "scalesearch.export.huggingface.format:HuggingFace",
    "onnx": "scalesearch.export.onnx_:Onnx",
}


def format_of(name: str) -> Format:
    """The format ``name``. Raises UserError where there is none."""
    if name not in FORMATS:
        raise UserError(f"format {name}: there are {', '.join(FORMATS)}", code="unknown-format")
    module, _, kind = FORMATS[name].partition(":")
    found: Format = getattr(importlib.import_module(module), kind)()
    return found


def quantisation_of(format: Format, quantise: str | None) -> str:
    """The quantisation that is asked for, or the format's first. Raises UserError where the format has not that one."""
    if quantise not in (None, *format.quantisations):
        raise UserError(f"--quantize {quantise}: {format.name} has {', '.join(format.quantisations)}",
                        code="no-such-quantisation")
    return quantise or format.quantisations[0]


def check(format: Format, block: object, quantise: str) -> None:
    """Checks that ``format`` can hold an architecture. Raises UserError with every reason, and formats that can."""
    quantisation_of(format, quantise)
    if reasons := format.refusals(block):  # type: ignore[arg-type]
        others = [name for name in FORMATS if name != format.name and not format_of(name).refusals(block)]  # type: ignore[arg-type]
        listed = "".join(f"\n  {reason}" for reason in reasons)
        raise UserError(f"--to {format.name} cannot hold this architecture:{listed}\nThese formats can: "
                        f"{', '.join(others)}", code="not-exportable")
