"""Results of a study: table, front, figures, and the candidate to export."""

from dataclasses import replace

import pandas as pd
import pytest

from scalesearch.pareto.front import pareto_front
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.objectives import parse_objective
from scalesearch.studies.results.publish import front_parts, write_outputs
from scalesearch.studies.results.results import load_results, select_best, select_by_number
from scalesearch.tasks import METRICS
from tests.errors import refuses
from tests.studies.fakes import architecture_of, make_driver, make_plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("study")
    large = {"width": 64, "depth": 4, "kind": "plain"}
    make_driver(where,
                make_plan(10,
                          references=(FixedArchitecture("large", architecture_of(large), large),
                                      ))).run()
    return where


def test_front_of_finished_feasible_candidates(folder):
    results = load_results(folder)
    done = results.table[(results.table["state"] == "complete") & results.table["is_feasible"]]
    on_front = pareto_front(done[["bleu", "params.total"]].to_numpy(float), ["max", "min"])
    assert sorted(results.front["trial"]) == sorted(done["trial"][on_front])
    assert "large" in set(results.table["label"]) and "large" not in set(results.front["label"])
    assert len(results.table) == len(results.study.trials)


@pytest.mark.full
def test_write_outputs_is_deterministic(folder, tmp_path):
    results = load_results(folder)
    files = write_outputs(results, tmp_path / "one")
    assert [file.name for file in files] == ["front.csv", "all.csv", "bleu-vs-params.png",
                                             "bleu-vs-params.svg", "bleu-vs-macs.png",
                                             "bleu-vs-macs.svg"]
    for first, second in zip(files, write_outputs(load_results(folder), tmp_path / "two")):
        assert first.read_bytes() == second.read_bytes()
    assert pd.read_csv(files[0])["trial"].tolist() == results.front["trial"].tolist()


def test_untrained_trials_have_params_in_same_columns(tmp_path):
    """Configurations contain constants and canonical names, params do not."""
    plan = make_plan(10, most=2000)
    resolve = plan.evaluator.space.resolve

    def with_a_constant(ask):
        config = resolve(ask)
        config["norm"] = "pre"
        return config

    plan.evaluator.space.resolve = with_a_constant
    make_driver(tmp_path, plan).run()
    table = load_results(tmp_path).table
    assert {"infeasible", "complete"} <= set(table["state"])
    assert set(table["param.norm"]) == {"pre"}


def test_notes_name_protocol_synthetic_corpus_signature_and_seed(folder):
    notes = "\n".join(load_results(folder).notes())
    for words in ("protocol forward, 10 source and 10 target tokens", "synthetic", "sig|v:1",
                  "seed 1"):
        assert words in notes


@pytest.mark.parametrize(("metric", "words"),
                         [("tokenized_bleu", "Tokenized BLEU: multi-bleu"), ("bleu", "BLEU: 13a"),
                          ("loss", "BLEU: 13a")])
def test_signature_of_main_metric(folder, metric, words):
    results = load_results(folder)
    goals = (parse_objective(metric, "min" if metric == "loss" else "max"),
             parse_objective("params.total", "min"))
    results.study.meta = replace(results.study.meta, objectives=goals)
    signed = {"metrics": {"bleu_signature": "13a", "tokenized_bleu_signature": "multi-bleu",
                          "decoding": "greedy"}}
    vars(results)["_first_record"] = signed
    assert results.signature == f"{words.partition(': ')[2]} · greedy"
    signature = results.signature.removesuffix(" · greedy")
    assert f"{METRICS[results.signed_metric].label}: {signature}" == words


def test_hypervolume_has_reference_point(folder):
    value, reference_point = load_results(folder).hypervolume()
    table = load_results(folder).table
    done = table[table["state"] == "complete"]
    assert value > 0 and reference_point[0] < done["bleu"].min()
    assert reference_point[1] > done["params.total"].max()


def test_nothing_is_selected_without_finished_trials(event_study):
    with refuses("nothing-finished", event_study.study.folder):
        select_best(load_results(event_study.study.folder))


def test_trial_is_selected_by_objective_or_number(folder):
    results = load_results(folder)
    rows = results.front.set_index("trial")
    assert select_best(results, "bleu")[0] == rows["bleu"].idxmax()
    assert select_best(results, "params.total") == (
        rows["params.total"].idxmin(),
        f"best params.total of the front ({rows['params.total'].min():,})")
    reason = select_best(results)[1]
    assert reason == f"best bleu of the front ({rows['bleu'].max():.2f})"
    assert select_by_number(results, int(rows.index[1])) == (rows.index[1], "selected by number")
    with refuses("unknown-objective", "blue"):
        select_best(results, "blue")
    with refuses("no-such-trial", results.study.folder, 999):
        select_by_number(results, 999)
    results.front["test.bleu"] = results.front["bleu"]
    with refuses("selection-on-test", "test.bleu", "by bleu"):
        select_best(results, "test.bleu")


def test_results_of_started_study(tmp_path):
    driver = make_driver(tmp_path, make_plan(1))
    results = load_results(tmp_path)
    assert results.front.empty and results.hypervolume() is None and results.signature == ""
    assert list(front_parts(results)) == ["Front of fake: no finished trials."]
    assert [file.name for file in write_outputs(results)] == ["front.csv", "all.csv"]
    assert len(driver.trials) == 0
