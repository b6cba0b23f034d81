"""``study table`` over a study that takes milliseconds."""

import json
from functools import partial

import pandas as pd

from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from tests.cli.study.commands import call_study
from tests.studies.fakes import architecture_of, make_driver, make_plan


def test_table_of_references(tmp_path):
    params_by_name = {"small": {"width": 8, "depth": 1, "kind": "plain"},
               "large": {"width": 32, "depth": 4, "kind": "plain"}}
    named = tuple(FixedArchitecture(name, architecture_of(params), params)
                  for name, params in params_by_name.items())
    make_driver(tmp_path / "one", make_plan(3, references=named)).run()

    call = partial(call_study, "table", tmp_path / "one")
    output = call()
    assert "References and front of fake" in output
    assert "No architecture has a second seed" in output
    assert (tmp_path / "one" / "table.tex").exists()
    table = json.loads(call("--base", "large", "--json", "--to", str(tmp_path)))
    names = [row["name"] for row in table["rows"]]
    assert names[:2] == ["large", "small"] and table["rows"][1]["difference"] < 0
    front = json.loads(call("--json"))["rows"][2:]
    assert front and all(row["name"].startswith("trial ") for row in front)
    assert pd.read_csv(tmp_path / "table.csv")["params"].tolist() == [
        row["params"] for row in table["rows"]]
