"""``study compare`` over studies that take milliseconds."""

import json

import pytest
from click.testing import CliRunner

from scalesearch.cli.study.group import command
from tests.errors import refuses
from tests.study.fakes import make_driver, make_plan


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    where = tmp_path_factory.mktemp("studies")
    make_driver(where / "one", make_plan(6), seed=1).run()
    driver = make_driver(where / "other", make_plan(8), seed=2)
    driver.study.update_meta(name="other")
    driver.run()
    return where / "one", where / "other"


def call(*arguments):
    result = CliRunner().invoke(command, ["compare", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_for_people_and_machines(folders, tmp_path):
    said = call(*folders, "--to", tmp_path / "made")
    assert said.startswith("fake: hypervolume 0.") and "Difference, fake less other:" in said
    assert "90 % interval" in said and "2,000 draws (seed 1)" in said
    assert "left out: softmax" in said and "macs.once" not in said
    found = json.loads(call(*folders, "--json", "--to", tmp_path / "made", "--resamples", 100))
    assert [study["name"] for study in found["studies"]] == ["fake", "other"]
    assert found["interval"]["draws"] == 100 and found["interval"]["low"] <= found["interval"][
        "high"]
    assert {file.name for file in (tmp_path / "made").iterdir()} == {
        "compare-bleu-vs-params.png", "compare-bleu-vs-params.svg"}
    assert len(found["files"]) == 2


def test_a_study_and_itself_are_told_apart(folders):
    found = json.loads(call(folders[0], folders[0], "--json", "--resamples", 200))
    assert found["difference"] == 0 and found["interval"]["low"] <= 0 <= found["interval"]["high"]
    assert found["studies"][0]["name"].endswith("(A)") and found["files"] == []


def test_other_data_is_refused(folders, tmp_path):
    driver = make_driver(tmp_path / "far", make_plan(3))
    driver.study.update_meta(data={"name": "toy", "hash": "xyz"})
    driver.run()
    with refuses("not-comparable", "data: hash abc in "):
        call(folders[0], tmp_path / "far")
