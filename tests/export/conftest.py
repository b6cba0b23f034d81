"""A model trained for a second, shared by all tests of exports."""

from pathlib import Path

import pytest

from scalesearch.data import Corpus
from scalesearch.training import train
from tests.training.conftest import corpus, recipe, tiny

__all__ = ["corpus", "trained_folder"]


@pytest.fixture(scope="session")
def trained_folder(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished training run."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    train(tiny(width=32, embedding__tie="all"), corpus, recipe(steps=40, max_tokens=400), folder)
    return folder
