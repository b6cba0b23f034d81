"""Fixtures of several folders; helpers that are no fixtures stand in modules beside this one.

``architectures`` answers for spaces, ``corpora`` small texts, ``processes`` commands and processes;
below ``study`` ``fakes`` drivers over a space that trains in no time, ``event_study`` studies written by
hand, ``noisy`` scores with noise.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scalesearch.study.executors.ray_environment import prepare_environment
from tests.corpora import write_text

# before PyTorch is loaded, and for every process that tests start
os.environ["OMP_NUM_THREADS"] = "1"
prepare_environment(None)  # before a test imports Ray
# studies of tests are forecast where that is what is tested
os.environ["SCALESEARCH_MEASURE"] = "0"


@pytest.fixture(scope="module")
def beside_a_text(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a text, in which a module's tests run: for studies that learn from ``corpora.DATA``."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("text")
        write_text(folder)
        patch.chdir(folder)
        yield folder


@pytest.fixture
def event_study(tmp_path: Path) -> Any:
    """Study whose events are written by the test."""
    from tests.study.event_study import EventStudy

    return EventStudy(tmp_path / "study")
