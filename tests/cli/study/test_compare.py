"""``study compare`` over studies that take milliseconds."""

import json
from functools import partial

import pytest

from tests.cli.study.commands import call_study
from tests.errors import refuses
from tests.studies.fakes import make_driver, make_plan


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    where = tmp_path_factory.mktemp("studies")
    make_driver(where / "one", make_plan(6), seed=1).run()
    driver = make_driver(where / "other", make_plan(8), seed=2)
    driver.study.update_meta(name="other")
    driver.run()
    return where / "one", where / "other"


call = partial(call_study, "compare")


def test_table_and_json_of_comparison(folders, tmp_path):
    output = call(*folders, "--to", tmp_path / "made")
    assert output.startswith("fake: hypervolume 0.") and "Difference, fake minus other:" in output
    assert "90 % interval" in output and "2,000 resamples (seed 1)" in output
    assert "not in macs: softmax" in output and "macs.once" not in output
    comparison = json.loads(call(*folders, "--json", "--to", tmp_path / "made", "--resamples", 100))
    assert [study["name"] for study in comparison["studies"]] == ["fake", "other"]
    assert (
        comparison["interval"]["draws"] == 100
        and comparison["interval"]["low"] <= comparison["interval"]["high"]
    )
    assert {file.name for file in (tmp_path / "made").iterdir()} == {
        "compare-bleu-vs-params.png", "compare-bleu-vs-params.svg"}
    assert len(comparison["files"]) == 2


def test_study_compared_with_itself_has_distinct_names(folders):
    comparison = json.loads(call(folders[0], folders[0], "--json", "--resamples", 200))
    assert (
        comparison["difference"] == 0
        and comparison["interval"]["low"] <= 0 <= comparison["interval"]["high"]
    )
    assert comparison["studies"][0]["name"].endswith("(A)") and comparison["files"] == []


def test_studies_with_other_data_are_refused(folders, tmp_path):
    driver = make_driver(tmp_path / "far", make_plan(3))
    driver.study.update_meta(data={"name": "toy", "hash": "xyz"})
    driver.run()
    with refuses("not-comparable", "data: hash abc in "):
        call(folders[0], tmp_path / "far")
