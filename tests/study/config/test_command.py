"""The command that a study was run by, read back from its folder."""

from pathlib import Path

import pytest

from scalesearch.study.config.command import command_of, read_started_study, started_study_folder
from scalesearch.study.config.reader import read_study
from tests.errors import refuses
from tests.study.config.test_reader import REST, SPACE

STORAGE = "storage: postgresql://someone:secret@host/database\n"


def begin(work: Path, text: str, *sets: str) -> Path:
    """The folder of a study that was run in ``work``."""
    (work / "s.yaml").write_text(text)
    spec = read_study(Path("s.yaml"), sets)
    folder = work / spec.out
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text("{}")
    command_of(spec).write(folder, spec.text)
    return folder


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    (place / "elsewhere").mkdir(parents=True)
    monkeypatch.chdir(place)
    return place


def test_options_of_last_time_hold_and_those_of_now_are_laid_over_them(work, monkeypatch):
    folder = begin(work, SPACE + REST, "recipe.steps=7", "trials=3")
    monkeypatch.chdir(work / "elsewhere")
    spec = read_started_study(folder, ["trials=4"])
    assert (spec.recipe.steps, spec.trials, spec.out) == (7, 4, Path("runs/s"))
    assert spec.overrides == ("recipe.steps=7", "trials=4") and Path.cwd() == work


def test_a_whole_key_of_now_takes_the_place_of_its_parts_of_then(work):
    folder = begin(work, SPACE + REST, "trials=8", "seeds=3", "seeds.extra_runs=1")
    assert read_started_study(folder).seeds.extra_runs == 1
    assert read_started_study(folder, ["seeds={max_per_candidate: 3, extra_runs: 6}"]).seeds.extra_runs == 6
    assert not read_started_study(folder, ["seeds=none"]).seeds.is_enabled
    assert read_started_study(folder,
                              ["seeds.extra_runs=2"]).seeds.extra_runs == 2, "a part changes that alone"


def test_relative_paths_begin_where_it_was_run(work, monkeypatch):
    (work / "small.yaml").write_text("width: 32\n")
    folder = begin(work, "space: small.yaml\n" + REST)
    monkeypatch.chdir(work / "elsewhere")
    assert read_started_study(folder).space.n_configurations() == 1


def test_a_file_that_has_changed_since_is_not_read_again(work):
    folder = begin(work, SPACE + REST)
    (work / "s.yaml").write_text(SPACE + REST.replace("steps: 5", "steps: 9"))
    assert read_started_study(folder).recipe.steps == 5


def test_another_folder_may_be_begun_with_it(work):
    assert read_started_study(begin(work, SPACE + REST),
                              out=Path("runs/other")).out == Path("runs/other")


def test_a_password_is_read_from_the_file_and_asked_for_where_that_is_gone(work):
    folder = begin(work, SPACE + REST + STORAGE)
    assert not any("secret" in file.read_text() for file in folder.iterdir())
    assert "secret" in read_started_study(folder).storage
    (work / "s.yaml").unlink()
    with refuses("no-password", "--set storage=URL"):
        read_started_study(folder)
    assert read_started_study(folder, ["storage=embedded"]).storage is None


def test_a_study_of_before_is_its_file(work):
    folder = begin(work, SPACE + REST, "recipe.steps=7")
    (folder / "command.json").unlink()
    assert read_started_study(folder).recipe.steps == 5


@pytest.mark.parametrize(("name", "found"),
                         [("runs/s", "runs/s"), ("runs/s/study.yaml", "runs/s"), ("s.yaml", None),
                          ("runs", None), ("nowhere", None)])
def test_a_folder_or_the_file_in_it_means_the_study(work, name, found):
    begin(work, SPACE + REST)
    assert started_study_folder(name) == (None if found is None else Path(found))
