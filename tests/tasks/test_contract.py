"""Contract of tasks, which every registered task fulfills."""

import math
import pickle
from dataclasses import replace

import pytest

from scalesearch.cli.study.run import export_options, proposed_format
from scalesearch.data import DataSpec, load_corpus
from scalesearch.export.base import check_exportable, get_format
from scalesearch.tasks import COMMON_METRICS, EFFICIENCY_METRICS, FILE_FORMATS, METRICS, TASKS
from scalesearch.training import Recipe, train
from scalesearch.training.scoring.speed import measure_speed
from tests.errors import refuses
from tests.studies.fakes import META
from tests.tasks.small import FORMS, corpus_of, model_for, spec_of

TASK = pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
RECIPE = Recipe(steps=6, max_tokens=200, lr=5e-3, beam=1, average="none", validate_every=3.0,
                threads=1, device="cpu", measure="both")


def test_tasks_are_registered() -> None:
    assert set(TASKS) == {"translation", "summarization", "correction", "language-model",
                          "masked-language-model", "classification"}


@TASK
def test_task_declares_its_metrics(task, tmp_path) -> None:
    assert task.file_format in FILE_FORMATS
    assert (task.score is None) == bool(task.score_loss or task.score_correct)
    measures = task.metrics_for(spec_of(task, tmp_path))
    assert task.main_metric in measures and set(COMMON_METRICS) <= set(measures) <= set(METRICS)
    assert all(metric.direction in ("min", "max") and metric.label for metric in measures.values())
    if task.score:
        # early stopping maximizes it
        assert measures[task.main_metric].direction == "max"


@TASK
def test_study_proposes_an_export_format_that_holds_the_models(task) -> None:
    format = get_format(proposed_format(task.name))
    check_exportable(format, model_for(task).block, format.quantizations[0])


@pytest.mark.parametrize(("changes", "options"), [
    ({}, "--to onnx"),
    ({"protocol": {"artifact": "onnx-int8"}}, "--to onnx --quantize int8"),
    ({"protocol": {"artifact": "onnx-int8"}, "recipe": {"decode_with": "ctranslate2-int16"}},
     "--to ctranslate2 --quantize int16")])
def test_study_proposes_the_export_format_that_it_measures(changes, options) -> None:
    assert export_options(replace(META, **changes)) == options


@TASK
def test_spec_and_corpus_round_trip(task, tmp_path) -> None:
    spec = spec_of(task, tmp_path)
    corpus = corpus_of(task, tmp_path)
    assert DataSpec.from_mapping(spec.model_dump()) == spec and len({spec, spec}) == 1
    reloaded = load_corpus(spec, tmp_path / "cache", tmp_path)
    rebuilt = load_corpus(spec, tmp_path / "elsewhere", tmp_path)
    for copy in (reloaded, rebuilt, pickle.loads(pickle.dumps(corpus))):
        assert copy.content_hash == corpus.content_hash
        for split in ("train", "validation", "test"):
            split_of_corpus = getattr(corpus, split)
            other_split = getattr(copy, split)
            assert (split_of_corpus.texts, split_of_corpus.window_overlap) == (
                other_split.texts,
                other_split.window_overlap) and split_of_corpus.target_ids == other_split.target_ids


@TASK
def test_perfect_hypotheses_have_the_best_score(task, tmp_path) -> None:
    corpus = corpus_of(task, tmp_path)
    for split in (corpus.validation, corpus.test):
        if task.score:
            best = task.score(list(split.texts.target), split.texts, corpus.spec)
            worse = task.score(["zzz qqq"] * len(split), split.texts, corpus.spec)
        else:
            best, worse = (task.score_loss(loss, 100, split.texts, corpus.spec)
                           if task.score_loss else {} for loss in (0.0, 3.0))
        if task.score_correct:
            best |= task.score_correct(100, 100)
            worse |= task.score_correct(10, 100)
        assert worse[task.main_metric] != pytest.approx(best[task.main_metric], rel=0.05)
        for name, metric in task.metrics.items():
            assert best[name] == pytest.approx(metric.best_value), name
            assert (worse[name] - best[name]) * (1 if metric.direction == "min" else -1) >= 0, name


@pytest.mark.full
@TASK
def test_training_reports_the_declared_metrics(task, tmp_path) -> None:
    corpus = corpus_of(task, tmp_path)
    out = tmp_path / "run"
    result = train(model_for(task), corpus, RECIPE, out)
    assert (result.state, result.reason) == ("complete", "")
    metrics = result.metrics
    assert metrics["task"] == task.name and any(key.endswith("_signature") for key in metrics)
    for scored in (metrics, metrics["test"]):
        output = {name for name in METRICS if name in scored and name not in EFFICIENCY_METRICS}
        assert output == set(task.metrics_for(corpus.spec))
        assert all(math.isfinite(scored[name]) for name in output)
    assert 0 < metrics["latency"] < 60_000 and metrics["latency_protocol"]["batch"] == 1
    assert metrics["latency_protocol"]["sentences"] == min(32, len(corpus.validation))
    assert 20 < metrics["memory"] < 100_000 and "peak resident" in metrics["memory_protocol"]


@pytest.mark.full
@TASK
def test_validation_curve_has_the_main_metric(task, tmp_path) -> None:
    if task.score is None:
        pytest.skip("generates nothing")
    recipe = Recipe(steps=4, max_tokens=200, beam=1, average="best", average_count=1,
                    validate_every=2.0, threads=1, device="cpu", validate_metric=True,
                    monitor="metric")
    result = train(model_for(task), corpus_of(task, tmp_path), recipe, tmp_path / "run")
    assert len(result.curve) == 2 and all(point[task.main_metric] is not None
                                          for point in result.curve)


@TASK
def test_test_text_is_optional(task, tmp_path) -> None:
    data = {key: value for key, value in FORMS[task.file_format](tmp_path).items() if key != "test"}
    spec = DataSpec.from_mapping({"task": task.name, "vocab": 60, **data})
    for _ in range(2):  # prepared, then read from the cache
        corpus = load_corpus(spec, tmp_path / "cache", tmp_path)
        assert len(corpus.test) == 0 and len(corpus.validation) == len(
            corpus_of(task, tmp_path).validation)
    recipe = RECIPE.replace(measure="none")
    result = train(model_for(task), corpus, recipe, tmp_path / "run")
    assert result.metrics["split"] == "validation" and "test" not in result.metrics
    assert result.metrics[task.main_metric] is not None
    speed = measure_speed(model_for(task), corpus, recipe, 0.1)
    assert speed.scoring_time.seconds > 0
    with refuses("nothing-to-score", key="recipe.score_splits"):
        train(model_for(task), corpus, recipe.replace(score_splits="test"), tmp_path / "other")
