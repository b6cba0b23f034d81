"""Fixtures that several folders use; other helpers are in modules next to this file.

``architectures`` has configurations, ``corpora`` small texts, ``processes`` commands and processes.
Below ``study``, ``fakes`` has drivers without training, ``event_study`` studies written by hand,
and ``noisy`` scores with noise.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.corpora import write_text

# before PyTorch is loaded, and for every process that tests start
os.environ["OMP_NUM_THREADS"] = "1"
# no forecast of studies, except in tests of forecasts
os.environ["SCALESEARCH_MEASURE"] = "0"


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a text, the working directory of a module's tests; see ``corpora.DATA``."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("text")
        write_text(folder)
        patch.chdir(folder)
        yield folder


@pytest.fixture
def event_study(tmp_path: Path) -> Any:
    """A study whose events the test writes."""
    from tests.study.event_study import EventStudy

    return EventStudy(tmp_path / "study")
