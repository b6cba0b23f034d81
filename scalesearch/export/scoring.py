"""Scoring by an artifact: what translates at the end of a training whose recipe says ``decode_with``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError
from scalesearch.export.base import ExportFormat
from scalesearch.export.formats import check_exportable, get_format
from scalesearch.train.recipe import DECODE_WITH_MODEL, Recipe

if TYPE_CHECKING:
    from scalesearch.train.scoring.evaluate import DecodeFunction


def resolve_decoder_format(recipe: Recipe) -> tuple[ExportFormat, str] | None:
    """Format and quantization of what translates; None for the model itself.

    Raises:
        UserError: a package of the format is missing.
    """
    if recipe.decode_with == DECODE_WITH_MODEL:
        return None
    name, _, quantize = recipe.decode_with.partition("-")
    format = get_format(name)
    try:
        format.package_versions()
    except UserError as error:
        raise UserError(f"decode_with: {error.message}", key="recipe.decode_with",
                        code=error.code) from None
    return format, quantize


def check_decoder(recipe: Recipe, block: Any) -> None:
    """Checks that what translates can hold an architecture. Raises UserError with every reason."""
    if found := resolve_decoder_format(recipe):
        format, quantize = found
        check_exportable(format, block, quantize)


@contextmanager
def artifact_decoder(folder: Path, name: str) -> Iterator[DecodeFunction]:
    """What translates by an artifact ``name``, such as ``ctranslate2-int8``, of the trained model in ``folder``."""
    import torch

    from scalesearch.train.checkpoint import read_checkpoint

    trained, (kind, _, quantize) = read_checkpoint(folder), name.partition("-")
    format = get_format(kind)
    with tempfile.TemporaryDirectory() as place:
        format.write(trained, Path(place), quantize)
        decoder = format.open_decoder(Path(place), torch.get_num_threads())
        yield lambda split, search: decoder.translate(split, trained, search)
