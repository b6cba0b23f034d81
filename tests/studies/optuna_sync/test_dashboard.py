"""Optuna's dashboard shows the same trials as the results of a study."""

import json
import socket
import subprocess
import sys
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

from scalesearch.studies.executors.ray_environment import is_listening
from scalesearch.studies.optuna_sync.attributes import TrialExporter, user_attributes
from scalesearch.studies.results.results import load_results
from tests.processes import HANG, wait_until
from tests.studies.fakes import (
    OBJECTIVES,
    FakeSpace,
    architecture_of,
    exported,
    make_driver,
    make_plan,
)
from tests.studies.pages import FixedArchitecture, references_only

STATES = {"complete": "Complete", "infeasible": "Pruned", "duplicate": "Pruned", "failed": "Fail"}
# what `optuna-dashboard` runs
COMMAND = "import sys; from optuna_dashboard._cli import main; sys.exit(main())"
LARGE = {"width": 64, "depth": 4, "kind": "plain"}


@contextmanager
def dashboard(storage):
    """Start the dashboard in another process; yield a function that calls its API."""
    pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]

    def ask(path):
        with urlopen(f"http://127.0.0.1:{port}/api/{path}", timeout=HANG) as response:
            return json.load(response)

    server = subprocess.Popen([sys.executable, "-c", COMMAND, "--port", str(port), "--quiet",
                               str(storage)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_listening("127.0.0.1", port), server)
        yield ask
    finally:
        server.terminate()
        server.wait()


def words(attrs):
    return {attribute["key"]: attribute["value"] for attribute in attrs}


def test_dashboard_shows_trials_of_the_study(tmp_path):
    reference = FixedArchitecture("as large as it gets", architecture_of(LARGE), LARGE)
    make_driver(tmp_path, make_plan(8, most=20000, references=(reference,))).run()
    results = load_results(tmp_path)
    with dashboard(tmp_path / "optuna.journal") as ask:
        study_summary, = ask("studies")["study_summaries"]
        study = ask(f"studies/{study_summary['study_id']}")
    assert (study["name"], study["directions"]) == ("fake", ["maximize", "minimize"])
    assert study["objective_names"] == [objective.name for objective in OBJECTIVES]
    assert len(study["trials"]) == len(results.study.trials)
    for exported_trial in study["trials"]:
        attributes = words(exported_trial["user_attrs"])
        trial = results.study.trials[int(attributes["trial"])]
        assert (
            exported_trial["state"] == STATES[trial.state]
            and attributes.get("label") == trial.label
        )
        assert {
            item["name"]: item["param_external_value"] for item in exported_trial["params"]
        } == {name: str(value) for name, value in trial.params.items()}
        assert int(attributes["params.total"]) == trial.costs["params.total"]
        assert (
            float(attributes["violation params.total <= 20000"])
            == trial.constraints["params.total <= 20000"]
        )
        if trial.state == "complete":
            assert exported_trial["values"] == [
                trial.values[objective.name] for objective in OBJECTIVES
            ]
    best = {
        int(words(exported_trial["user_attrs"])["trial"]) for exported_trial in study["best_trials"]
    }
    assert best == set(results.front["trial"])


def test_dashboard_shows_fixed_architectures(tmp_path):
    references_only(tmp_path, {"small": {**LARGE, "width": 16}, "large": LARGE}, params={})
    with dashboard(tmp_path / "optuna.journal") as ask:
        study = ask("studies/0")
    assert [words(exported_trial["user_attrs"])["label"] for exported_trial in study["trials"]] == [
        "small",
        "large",
    ]
    assert all(
        exported_trial["state"] == "Complete" and exported_trial["params"] == []
        for exported_trial in study["trials"]
    )


def test_references_outside_the_space_are_not_exported(tmp_path):
    references_only(tmp_path / "outside")
    references_only(tmp_path / "inside", params={})
    outside, inside = (exported(make_driver(tmp_path / name, make_plan(0)))
                       for name in ("outside", "inside"))
    assert outside.get_trials() == [] and [
        exported_trial.params for exported_trial in inside.get_trials()
    ] == [{}, {}]
    assert inside.metric_names == ["bleu", "params.total"]


def test_params_are_exported_unchanged():
    values = {"width": 24, "depth": 4, "kind": "gated", "slope": 1.5}
    params, shapes = TrialExporter(FakeSpace(), OBJECTIVES).params(values)
    assert params == values
    assert (shapes["depth"].low, shapes["depth"].high) == (1, 8) and shapes["kind"].choices == (
        "plain", "gated")


def test_attributes_have_costs_and_constraint_violations(tmp_path):
    make_driver(tmp_path, make_plan(3, most=2000)).run()
    for trial in load_results(tmp_path).study.trials:
        attributes = user_attributes(trial)
        missed = {
            name: value for name, value in attributes.items() if name.startswith("violation ")
        }
        assert missed == {f"violation {name}": slack
                          for name, slack in trial.constraints.items()} and len(missed) == 2
        assert attributes["feasible"] == all(
            value <= 0 for value in missed.values()) and attributes["trial"] == trial.number
