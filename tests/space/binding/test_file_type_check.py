"""A space passed as a study, and a study as a space: one error, for every shipped file."""

from pathlib import Path

import pytest

from scalesearch.space import read_space
from scalesearch.study.config.reader import read_study
from tests.errors import refuses


@pytest.mark.parametrize("file", sorted(Path("studies").glob("*.yaml")), ids=lambda file: file.stem)
def test_study_read_as_space_is_one_error(file: Path) -> None:
    with refuses("wrong-type", place=f"{file}:"):
        read_space(file)


@pytest.mark.parametrize("file", sorted(Path("spaces").rglob("*.yaml")), ids=lambda file: file.stem)
def test_space_read_as_study_is_one_error(file: Path) -> None:
    with refuses("wrong-type", place=f"{file}:"):
        read_study(file)


def test_misplaced_key_is_reported_as_unknown(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("width: 64\ndata: builtin\ntrials: 3\n")
    with refuses("unknown-key", place=f"{file}:2:1"):
        read_space(file)
