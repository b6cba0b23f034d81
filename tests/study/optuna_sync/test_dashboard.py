"""Optuna's dashboard on the storage of a study: it says what we say."""

import json
import socket
import subprocess
import sys
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

from scalesearch.study.executors.ray_environment import is_listening
from scalesearch.study.optuna_sync.attributes import TrialExporter, user_attributes
from scalesearch.study.results.results import load_results
from tests.processes import HANG, wait_until
from tests.study.fakes import OBJECTIVES, FakeSpace, architecture_of, exported, make_driver, make_plan
from tests.study.pages import FixedArchitecture, references_only

STATES = {"complete": "Complete", "infeasible": "Pruned", "failed": "Fail"}
# what `optuna-dashboard` runs
COMMAND = "import sys; from optuna_dashboard._cli import main; sys.exit(main())"
LARGE = {"width": 64, "depth": 4, "kind": "plain"}


@contextmanager
def dashboard(storage):
    """The dashboard in a process of its own; gives a function that asks its API."""
    pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]

    def ask(path):
        with urlopen(f"http://127.0.0.1:{port}/api/{path}", timeout=HANG) as answer:
            return json.load(answer)

    server = subprocess.Popen([sys.executable, "-c", COMMAND, "--port", str(port), "--quiet",
                               str(storage)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_listening("127.0.0.1", port), server)
        yield ask
    finally:
        server.terminate()
        server.wait()


def words(attrs):
    return {one["key"]: one["value"] for one in attrs}


def test_the_dashboard_shows_the_study_that_we_show(tmp_path):
    reference = FixedArchitecture("as large as it gets", architecture_of(LARGE), LARGE)
    make_driver(tmp_path, make_plan(8, most=20000, references=(reference,))).run()
    results = load_results(tmp_path)
    with dashboard(tmp_path / "optuna.journal") as ask:
        one, = ask("studies")["study_summaries"]
        found = ask(f"studies/{one['study_id']}")
    assert (found["name"], found["directions"]) == ("fake", ["maximize", "minimize"])
    assert found["objective_names"] == [objective.name for objective in OBJECTIVES]
    assert len(found["trials"]) == len(results.study.trials)
    for there in found["trials"]:
        said = words(there["user_attrs"])
        trial = results.study.trials[int(said["trial"])]
        outcome = results.study.trials.resolve_duplicate(trial)
        assert there["state"] == STATES[outcome.state] and said.get("label") == trial.label
        assert {one["name"]: one["param_external_value"] for one in there["params"]} == \
            {name: str(value) for name, value in trial.params.items()}
        assert int(said["params.total"]) == trial.costs["params.total"]
        assert float(
            said["violation params.total <= 20000"]) == trial.constraints["params.total <= " "20000"]
        if outcome.state == "complete":
            assert there["values"] == [outcome.values[objective.name] for objective in OBJECTIVES]
    best = {int(words(there["user_attrs"])["trial"]) for there in found["best_trials"]}
    assert {results.study.trials.resolve_duplicate(results.study.trials[number]).number
            for number in best} == set(results.front["trial"])


def test_the_dashboard_shows_named_architectures_where_nothing_is_searched(tmp_path):
    references_only(tmp_path, {"small": {**LARGE, "width": 16}, "large": LARGE}, params={})
    with dashboard(tmp_path / "optuna.journal") as ask:
        found = ask("studies/0")
    assert [words(one["user_attrs"])["label"] for one in found["trials"]] == ["small", "large"]
    assert all(one["state"] == "Complete" and one["params"] == [] for one in found["trials"])


def test_references_from_outside_the_space_are_not_in_the_copy(tmp_path):
    references_only(tmp_path / "outside")
    references_only(tmp_path / "inside", params={})
    outside, inside = (exported(make_driver(tmp_path / name, make_plan(0)))
                       for name in ("outside", "inside"))
    assert outside.get_trials() == [] and [one.params for one in inside.get_trials()] == [{}, {}]
    assert inside.metric_names == ["bleu", "params.total"]


def test_answers_are_shown_as_they_are():
    sheet = {"width": 24, "depth": 4, "kind": "gated", "slope": 1.5}
    params, shapes = TrialExporter(FakeSpace(), OBJECTIVES).params(sheet)
    assert params == sheet
    assert (shapes["depth"].low, shapes["depth"].high) == (1, 8) and shapes["kind"].choices == (
        "plain", "gated")


def test_a_trial_says_its_costs_and_by_how_much_it_misses_a_limit(tmp_path):
    make_driver(tmp_path, make_plan(3, most=2000)).run()
    for trial in load_results(tmp_path).study.trials:
        said = user_attributes(trial)
        missed = {name: value for name, value in said.items() if name.startswith("violation ")}
        assert missed == {f"violation {name}": slack
                          for name, slack in trial.constraints.items()} and len(missed) == 2
        assert said["feasible"] == all(
            value <= 0 for value in missed.values()) and said["trial"] == trial.number
