"""The command that a study was run by, read back from its folder."""

from pathlib import Path

import pytest

from scalesearch.studies.config.command import (
    read_started_study,
    save_command,
    started_study_folder,
)
from scalesearch.studies.config.reader import read_study
from tests.errors import refuses
from tests.studies.config.test_reader import REST, SPACE

STORAGE = "storage: postgresql://someone:secret@host/database\n"


def begin(work: Path, text: str, *sets: str) -> Path:
    """The folder of a study that was run in ``work``."""
    (work / "s.yaml").write_text(text)
    spec = read_study(Path("s.yaml"), sets)
    folder = work / spec.out
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text("{}")
    save_command(spec)
    return folder


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    (place / "elsewhere").mkdir(parents=True)
    monkeypatch.chdir(place)
    return place


def test_stored_options_are_overridden_by_new_ones(work, monkeypatch):
    folder = begin(work, SPACE + REST, "recipe.steps=7", "trials=3")
    monkeypatch.chdir(work / "elsewhere")
    spec = read_started_study(folder, ["trials=4"])
    assert (spec.recipe.steps, spec.trials, spec.out) == (7, 4, Path("runs/s"))
    assert spec.overrides == ("recipe.steps=7", "trials=4") and Path.cwd() == work


def test_new_value_of_a_key_replaces_stored_parts_of_it(work):
    folder = begin(work, SPACE + REST, "trials=8", "seeds=3", "seeds.extra_runs=1")
    assert read_started_study(folder).seeds.extra_runs == 1
    override = "seeds={max_per_candidate: 3, extra_runs: 6}"
    assert read_started_study(folder, [override]).seeds.extra_runs == 6
    assert not read_started_study(folder, ["seeds=none"]).seeds.is_enabled
    assert read_started_study(folder, ["seeds.extra_runs=2"]).seeds.extra_runs == 2


def test_relative_paths_start_in_the_folder_of_the_first_run(work, monkeypatch):
    (work / "small.yaml").write_text("width: 32\n")
    folder = begin(work, "space: small.yaml\n" + REST)
    monkeypatch.chdir(work / "elsewhere")
    assert read_started_study(folder).space.n_configurations() == 1


def test_changed_file_is_not_read_again(work):
    folder = begin(work, SPACE + REST)
    (work / "s.yaml").write_text(SPACE + REST.replace("steps: 5", "steps: 9"))
    assert read_started_study(folder).recipe.steps == 5


def test_stored_command_can_start_another_folder(work):
    assert read_started_study(begin(work, SPACE + REST),
                              out=Path("runs/other")).out == Path("runs/other")


def test_password_is_read_from_the_file_or_requested(work):
    folder = begin(work, SPACE + REST + STORAGE)
    assert not any("secret" in file.read_text() for file in folder.iterdir())
    assert "secret" in read_started_study(folder).storage
    (work / "s.yaml").unlink()
    with refuses("no-password", "--set storage=URL"):
        read_started_study(folder)
    assert read_started_study(folder, ["storage=embedded"]).storage is None


def test_study_without_a_stored_command_is_its_file(work):
    folder = begin(work, SPACE + REST, "recipe.steps=7")
    (folder / "command.json").unlink()
    assert read_started_study(folder).recipe.steps == 5


@pytest.mark.parametrize(("name", "expected"),
                         [("runs/s", "runs/s"), ("runs/s/study.yaml", "runs/s"), ("s.yaml", None),
                          ("runs", None), ("nowhere", None)])
def test_folder_and_its_file_name_the_study(work, name, expected):
    begin(work, SPACE + REST)
    assert started_study_folder(name) == (None if expected is None else Path(expected))
