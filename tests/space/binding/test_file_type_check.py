"""A space given for a study and a study given for a space: one error that says so, for every file that is shipped."""

from pathlib import Path

import pytest

from scalesearch.space import read_space
from scalesearch.study.config.reader import read_study
from tests.errors import refuses


@pytest.mark.parametrize("file", sorted(Path("studies").glob("*.yaml")), ids=lambda file: file.stem)
def test_a_study_is_no_space(file: Path) -> None:
    with refuses("wrong-type", place=f"{file}:"):
        read_space(file)


@pytest.mark.parametrize("file", sorted(Path("spaces").rglob("*.yaml")), ids=lambda file: file.stem)
def test_a_space_is_no_study(file: Path) -> None:
    with refuses("wrong-type", place=f"{file}:"):
        read_study(file)


def test_a_key_that_is_only_misplaced_is_told_as_such(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("width: 64\ndata: builtin\ntrials: 3\n")
    with refuses("unknown-key", place=f"{file}:2:1"):
        read_space(file)
