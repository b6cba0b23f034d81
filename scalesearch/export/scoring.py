"""Scoring with an exported model, if the recipe sets ``decode_with``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError
from scalesearch.export.base import ExportFormat, check_exportable, get_format
from scalesearch.training.recipe import DECODE_WITH_MODEL, Recipe

if TYPE_CHECKING:
    from scalesearch.training.scoring.evaluate import DecodeFunction


def resolve_decoder_format(recipe: Recipe) -> tuple[ExportFormat, str] | None:
    """Return format and quantization of the decoder, or None for the model itself.

    Raises:
        UserError: a package of the format is missing.
    """
    if recipe.decode_with == DECODE_WITH_MODEL:
        return None
    name, _, quantization = recipe.decode_with.partition("-")
    format = get_format(name)
    try:
        format.package_versions()
    except UserError as error:
        raise UserError(f"decode_with: {error.message}", key="recipe.decode_with",
                        code=error.code) from None
    return format, quantization


def check_decoder(recipe: Recipe, block: Any) -> None:
    """Raise a UserError if the format of the decoder cannot hold an architecture."""
    if decoder_format := resolve_decoder_format(recipe):
        format, quantization = decoder_format
        check_exportable(format, block, quantization)


@contextmanager
def artifact_decoder(folder: Path, name: str) -> Iterator[DecodeFunction]:
    """Yield a function that translates with an export of the model in ``folder``.

    ``name`` is a format and a quantization, such as ``ctranslate2-int8``.
    """
    import torch

    from scalesearch.training.checkpoint import read_checkpoint

    trained = read_checkpoint(folder)
    format_name, _, quantization = name.partition("-")
    format = get_format(format_name)
    with tempfile.TemporaryDirectory() as temporary:
        format.write(trained, Path(temporary), quantization)
        decoder = format.open_decoder(Path(temporary), torch.get_num_threads())
        yield lambda split, search: decoder.translate(split, trained, search)
