"""``study table`` over a study that takes milliseconds."""

import json

import pandas as pd
from click.testing import CliRunner

from scalesearch.cli.study.group import command
from scalesearch.study.config.fixed_architectures import FixedArchitecture
from tests.study.fakes import architecture_of, make_driver, make_plan


def test_the_references_of_a_study_as_a_table(tmp_path):
    answers = {"small": {"width": 8, "depth": 1, "kind": "plain"},
               "large": {"width": 32, "depth": 4, "kind": "plain"}}
    named = tuple(FixedArchitecture(name, architecture_of(one), one)
                  for name, one in answers.items())
    make_driver(tmp_path / "one", make_plan(3, references=named)).run()

    def call(*arguments):
        result = CliRunner().invoke(command, ["table", str(tmp_path / "one"), *arguments],
                                    catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    output = call()
    assert "References of fake" in output and "No row has a second seed" in output
    assert (tmp_path / "one" / "table.tex").exists()
    found = json.loads(call("--base", "large", "--json", "--to", str(tmp_path)))
    assert [row["name"] for row in found["rows"]] == [
        "large", "small"] and found["rows"][1]["difference"] < 0
    assert pd.read_csv(tmp_path / "table.csv")["params"].tolist() == [
        row["params"] for row in found["rows"]]
