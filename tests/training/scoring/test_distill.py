"""Translations of a teacher: complete, resumable, from one teacher only."""

from pathlib import Path

import pytest

from scalesearch.training.scoring import distill as module
from scalesearch.training.scoring.distill import write_translations
from tests.errors import refuses

TEXTS = [f"line {n}" for n in range(25)]
SETTINGS = {"teacher": "abc", "decoding": "greedy"}


def uppercase(lines: list[str]) -> list[str]:
    return [line.upper() for line in lines]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAVE_INTERVAL", 10)


def test_each_line_is_translated(tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    assert write_translations(TEXTS, tmp_path / "kd", ("en", "de"), uppercase, SETTINGS,
                              lambda *facts: progress.append(facts)) == 25
    assert (tmp_path / "kd.en").read_text().splitlines() == TEXTS
    assert (tmp_path / "kd.de").read_text().splitlines() == uppercase(TEXTS)
    assert progress == [(0, 25), (10, 25), (20, 25), (25, 25)]


def test_interrupted_translation_is_continued(tmp_path: Path) -> None:
    calls: list[int] = []

    def stop_at_second(lines: list[str]) -> list[str]:
        calls.append(len(lines))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return uppercase(lines)

    with pytest.raises(KeyboardInterrupt):
        write_translations(TEXTS, tmp_path / "kd", ("en", "de"), stop_at_second, SETTINGS)
    with (tmp_path / "kd.de").open("a") as file:
        file.write("LINE 1")  # an incomplete line of a killed process
    with (tmp_path / "kd.en").open("a") as file:
        file.write("line 10\nline 11\n")  # lines without translations
    assert write_translations(TEXTS, tmp_path / "kd", ("en", "de"), uppercase, SETTINGS) == 25
    assert (tmp_path / "kd.en").read_text().splitlines() == TEXTS
    assert (tmp_path / "kd.de").read_text().splitlines() == uppercase(TEXTS)


def test_translations_of_another_teacher_are_refused(tmp_path: Path) -> None:
    write_translations(TEXTS, tmp_path / "kd", ("en", "de"), uppercase, SETTINGS)
    with refuses("other-settings", SETTINGS["teacher"], "xyz", tmp_path / "kd.de"):
        write_translations(TEXTS, tmp_path / "kd", ("en", "de"), uppercase,
                           SETTINGS | {"teacher": "xyz"})


def test_existing_files_without_settings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "kd.de").write_text("not a translation\n")
    with refuses("other-settings"):
        write_translations(TEXTS, tmp_path / "kd", ("en", "de"), uppercase, SETTINGS)
    assert (tmp_path / "kd.de").read_text() == "not a translation\n" and not (
        tmp_path / "kd.json").exists()
