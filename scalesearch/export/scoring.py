"""Scoring by an artefact: what translates at the end of a training whose recipe says ``decode_with``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError
from scalesearch.export.base import Format
from scalesearch.export.formats import check, format_of
from scalesearch.train.recipe import MODEL, Recipe

if TYPE_CHECKING:
    from scalesearch.train.scoring.evaluate import Decode


def check_packages(recipe: Recipe) -> tuple[Format, str] | None:
    """Format and quantisation of what translates; None for the model itself.

    Raises:
        UserError: a package of the format is missing.
    """
    if recipe.decode_with == MODEL:
        return None
    name, _, quantise = recipe.decode_with.partition("-")
    format = format_of(name)
    try:
        format.versions()
    except UserError as error:
        raise UserError(f"decode_with: {error.message}", key="recipe.decode_with", code=error.code) from None
    return format, quantise


def check_decoder(recipe: Recipe, block: Any) -> None:
    """Checks that what translates can hold an architecture. Raises UserError with every reason."""
    if found := check_packages(recipe):
        format, quantise = found
        check(format, block, quantise)


@contextmanager
def artefact_decoder(folder: Path, name: str) -> Iterator[Decode]:
    """What translates by an artefact ``name``, such as ``ctranslate2-int8``, of the trained model in ``folder``."""
    import torch

    from scalesearch.train.checkpoint import read_checkpoint

    trained, (kind, _, quantise) = read_checkpoint(folder), name.partition("-")
    format = format_of(kind)
    with tempfile.TemporaryDirectory() as place:
        format.write(trained, Path(place), quantise)
        decoder = format.open(Path(place), torch.get_num_threads())
        yield lambda split, search: decoder.translate(split, trained, search)
