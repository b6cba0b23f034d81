"""``scalesearch study run FOLDER --resume``: resume a study from its folder only."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scalesearch.cli.study.group import command
from tests.cli.study.test_rows import KINDS, REST
from tests.errors import refuses

pytestmark = pytest.mark.usefixtures("text_folder")


def run(*arguments: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scalesearch.studies.results.publish.write_figures", lambda *_: [])
        return CliRunner().invoke(command, ["run", *arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(text_folder: Path) -> Path:
    """A grid study with an option, in a folder that its file does not name."""
    Path("s.yaml").write_text(f"type: grid\n{REST}{KINDS['grid']}")
    assert run("s.yaml", "--set", "recipe.steps=3", "--out", "mine").exit_code == 0
    return text_folder / "mine"


@pytest.mark.parametrize("name", ["mine", "mine/study.yaml"])
def test_resume_repeats_no_training(folder, name):
    before = (folder / "events.jsonl").read_text()
    done = run(name, "--resume", "--json")
    assert json.loads(done.stdout)["counts"]["complete"] == 2 and (
        folder / "events.jsonl").read_text() == before


def test_resume_from_another_folder_with_more_seeds(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(str(folder), "--resume", "--set", "seeds=2", "--json")
    events = (folder / "events.jsonl").read_text().splitlines()
    assert done.exit_code == 0 and sum('"replicate"' in line for line in events) == 2
    assert json.loads(
        (folder / "command.json").read_text())["overrides"] == ["recipe.steps=3", "seeds=2"]


def test_missing_resume_and_changed_recipe_are_refused(folder):
    with refuses("study-exists", "--resume"):
        run("mine")
    with refuses("study-changed", "recipe"):
        run("mine", "--resume", "--set", "recipe.steps=4")


@pytest.mark.full
def test_removed_reference_gets_its_seeds(folder):
    named = "reference: { name: mine, set: { width: 16 } }\n"
    search = (f"space: {{ width: 8 | 16, encoder: {{ heads: 2 }}, decoder: {{ heads: 2 }} "
              f"}}\ntrials: 1\n{REST}")
    Path("t.yaml").write_text(search + named)
    assert run("t.yaml", "--out", "without").exit_code == 0
    Path("t.yaml").write_text(search)
    assert run("t.yaml", "--out", "without", "--resume", "--set",
               "seeds={most: 1, references: 2}").exit_code == 0
    events = [json.loads(line) for line in Path("without/events.jsonl").read_text().splitlines()]
    [again] = [event for event in events if event.get("origin") == "replicate"]
    assert any(event["type"] == "ended" and event["trial"] == again["trial"]
               and event["state"] == "complete" for event in events)


def test_missing_study_is_reported(folder):
    done = run("s.yaml", "--resume", "--set", "recipe.steps=1", "--out", "typo")
    assert (
        done.exit_code == 0
        and "nothing to resume in typo; starting from the beginning" in done.output
    )
