"""Studies of fixed architectures: every row is trained with its seeds; changes are detected."""

import json

import pytest
from rich.console import Console

from scalesearch.cli.study.run import dry_run_to_json
from scalesearch.report.ablation import build_ablation
from scalesearch.studies.config.fixed_architectures import FixedArchitecture, shorten_paths
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.engine.dry_run import dry_run
from scalesearch.studies.engine.run import launch
from scalesearch.studies.results.publish import table_of
from scalesearch.studies.results.results import load_results
from scalesearch.studies.trials.trial import State
from tests.corpora import DATA
from tests.errors import refuses
from tests.studies.fakes import architecture_of, make_driver, make_plan
from tests.studies.noisy import noisy_work

pytestmark = pytest.mark.usefixtures("text_folder")
ROWS = [{"width": width, "depth": 1, "kind": "plain"} for width in (8, 16, 16)]
PLAN = make_plan(0,
                 references=tuple(FixedArchitecture(f"row {number}", architecture_of(config), {})
                                  for number, config in enumerate(ROWS)))
FILE = f"""\
study: rows
type: ablation
data: {DATA}
base: {{ file: small/plain, set: {{ width: 16, encoder.depth: 1, decoder.depth: 1 }} }}
changes: [encoder.depth: 2, width: 32]
recipe: {{ steps: 2, max_tokens: 64, beam: 1 }}
objectives: {{ bleu: max, params.total: min }}
"""


def test_rows_are_trained_without_proposals(tmp_path):
    driver = make_driver(tmp_path, PLAN)
    assert driver.run() == "3 of 3 architectures trained"
    assert [trial.state for trial in driver.trials] == [
        State.COMPLETE, State.COMPLETE, State.DUPLICATE]
    assert all(trial.is_in_space for trial in driver.trials), "they may be on the front"
    copy = driver.search.study.trials
    assert [trial.state.name for trial in copy] == [
        "COMPLETE", "COMPLETE", "FAIL"] and not copy[0].params


def test_duplicate_rows_have_no_seeds(tmp_path):
    plan = make_plan(0, references=PLAN.spec.references, seeds=Seeds(references=3))
    driver = make_driver(tmp_path, plan, work=noisy_work)
    driver.run()
    assert sorted(trial.original for trial in driver.trials.replicates()) == [0, 0, 1, 1]
    again = make_driver(tmp_path, plan, work=noisy_work)
    again.run()
    assert len(again.trials) == len(driver.trials) == 7


def test_study_stops_when_every_row_fails(tmp_path):
    def failing(folder):
        raise RuntimeError("the loss is not a number")

    plan = make_plan(
        0,
        references=tuple(FixedArchitecture(str(width), architecture_of({**ROWS[0], "width": width}),
                                           {}) for width in range(8, 64, 8)), attempts=1)
    with refuses("too-many-failed", "first 3"):
        make_driver(tmp_path, plan, work=failing).run()


def test_short_names_are_distinct():
    names = shorten_paths(["width", "encoder.depth", "decoder.depth", "encoder.ffn.hidden"])
    assert names == {"width": "width", "encoder.depth": "encoder.depth",
                     "decoder.depth": "decoder.depth", "encoder.ffn.hidden": "hidden"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, text_folder):
    """The folder and file of a study that has run."""
    folder = tmp_path_factory.mktemp("rows")
    file = folder / "rows.yaml"
    file.write_text(FILE)
    launch(read_study(file, [], folder / "run"), False, Console(quiet=True))
    return folder / "run", file


@pytest.mark.full
def test_table_has_exact_costs(trained):
    results = load_results(trained[0])
    table = table_of(results, "bleu")
    assert [row.name for row in table.rows] == ["base", "encoder.depth: 2", "width: 32"]
    spec = read_study(trained[1])
    costs = {trial.label: trial.costs["params.total"] for trial in dry_run(spec).trials}
    assert {row.name: row.params for row in table.rows} == costs
    meta = json.loads((trained[0] / "study.json").read_text())
    assert (meta["type"], meta["base"], meta["architectures"]) == (
        "ablation", "base", list(costs)) and meta["sampler"] is None


@pytest.mark.full
def test_rows_and_seeds_can_be_added_but_not_changed(trained):
    folder, file = trained
    more = "changes=[{encoder.depth: 2}, {width: 32}, {width: 48}]"
    launch(read_study(file, [more, "seeds=2"], folder), True, Console(quiet=True))
    table = table_of(load_results(folder), "bleu")
    assert {row.name: row.n_seeds for row in table.rows} == {
        "base": 2, "encoder.depth: 2": 2, "width: 32": 2, "width: 48": 2}
    with refuses("study-changed", "`width: 32`"):
        other = "changes=[{name: 'width: 32', set: {width: 40}}]"
        launch(read_study(file, [other], folder), True, Console(quiet=True))
    with refuses("study-changed", "the type of the study"):
        launch(read_study(file.parent / _searching(file), [], folder), True, Console(quiet=True))
    launch(read_study(file, ["changes=[{encoder.depth: 2}]", "seeds=2"], folder), True,
           Console(quiet=True))
    left = table_of(load_results(folder), "bleu")
    assert [row.name for row in left.rows] == [
        "base", "encoder.depth: 2"], "rows that the file no longer names are left out"


def _searching(file):
    text = FILE.replace("type: ablation\n", "").replace(
        "changes: [encoder.depth: 2, width: 32]\n", "")
    (file.parent / "search.yaml").write_text(text.replace("base:", "space:"))
    return "search.yaml"


def test_infeasible_rows_are_not_trained(tmp_path):
    file = tmp_path / "rows.yaml"
    file.write_text(FILE)
    plan = dry_run(read_study(file))
    base = plan.trials[0].costs["params.total"]
    file.write_text(FILE + f"budget: params.total <= {base}\n")
    plan = dry_run(read_study(file))
    assert [trial.label for trial in plan.trials_to_train] == ["base"]
    assert set(plan.spec.architectures.excluded) == {"encoder.depth: 2", "width: 32"}
    assert plan.planned_runs == 1 and "not params.total" in dry_run_to_json(plan)["excluded"][
        "width: 32"]
    file.write_text(FILE + f"budget: params.total < {base}\n")
    with refuses("budget-unmet", 3, key="budget"):
        dry_run(read_study(file))
    file.write_text(FILE + f"budget: params.total > {base}\n")
    with refuses("base-exceeds-budget", key="budget"):
        dry_run(read_study(file))


def test_ablation_table_needs_named_architectures():
    with refuses("no-named-architecture"):
        build_ablation([], "bleu")


def test_row_is_named_after_its_file(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "study: s\ntype: grid\narchitectures: [found/plain-1.28m]\nrecipe: quick\n"
        "objectives: { bleu: max }\ndata: builtin\n")
    rows = read_study(tmp_path / "s.yaml").architectures.architectures
    assert [row.label for row in rows] == ["plain-1.28m"]
