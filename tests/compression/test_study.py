"""A tiny compression study: parent, replacements, front, fine-tuned combinations, resume."""

import io
import json
from functools import partial
from pathlib import Path

import pytest
import torch
from rich.console import Console

from scalesearch.compression.alternatives import Parent, evaluate_combination
from scalesearch.compression.front import read_library
from scalesearch.compression.library import weights_file
from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.spaces import read_space
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.engine.compression import MAX_LABEL_LENGTH, LibraryJobs
from scalesearch.studies.engine.dry_run import dry_run
from scalesearch.studies.engine.run import launch
from scalesearch.studies.monitor.snapshot import StudyWatcher
from scalesearch.studies.results.page.render import write_page
from scalesearch.studies.results.results import load_results
from scalesearch.studies.trials.trial import Callback
from scalesearch.training.checkpoint import read_checkpoint
from scalesearch.training.updates.averaging import read_weights
from tests.corpora import DATA, write_text
from tests.errors import refuses

STUDY = f"""\
study: tiny
type: compress
data: {DATA}
parent:
  file: parent.yaml
  recipe: {{ steps: 80, max_tokens: 256, lr: 1e-2, beam: 1, average: none }}
  beam: 1
replace:
  encoder.heads: 0 | 1
  encoder.ffn.relu.hidden: 0 | 8
  decoder.cross_heads: 1
  share.decoder.ffn: 2
fit: {{ pairs: 40, steps: 5, checks: 4 }}
recipe: {{ steps: 6, max_tokens: 256, beam: 1, average: none, validate_every: 0 }}
objectives: {{ loss: min, params.total: min, macs.total: min }}
protocol: {{ name: forward, source: 12, target: 12, vocab: corpus }}
budget: params.total <= 12k
trials: 2
backend: inprocess
out: OUT
"""
PARENT = """\
space: parent
width: 16
norm: pre
encoder: { depth: 2, heads: 2, head_dim: 8, ffn: { relu: { hidden: 32 } } }
decoder: { depth: 2, heads: 2, head_dim: 8, ffn: { relu: { hidden: 32 } } }
"""


def write_study(folder: Path, text: str = STUDY) -> Path:
    file = folder / "tiny.yaml"
    file.write_text(text.replace("OUT", str(folder / "out")))
    (folder / "parent.yaml").write_text(PARENT)
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("compress")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        write_text(place)
        launch(read_study(write_study(place)), False, Console(file=io.StringIO()))
    return place / "out"


def test_combinations_start_from_the_library_and_meet_the_budget(folder):
    trials = [json.loads(file.read_text()) for file in sorted(folder.glob("trials/*/record.json"))]
    members = json.loads((folder / "blocks/members.json").read_text())
    assert [trial["label"] for trial in trials] == [
        member["changes"] if len(member["changes"]) <= MAX_LABEL_LENGTH
        else f"combination {member['architecture']}" for member in members]
    results = load_results(folder)
    assert len(results.front) and results.teacher_note.startswith("Parent: ")
    assert len(trials) == 2 and all(trial["state"] == "complete" for trial in trials)
    for trial in trials:
        assert trial["costs"]["params.total"] <= 12_000
        assert trial["costs"]["predicted.loss"] > 0
        model = read_checkpoint(trial["initial_model"]["folder"])
        assert model.architecture.id == trial["architecture"]
        assert sum(weight.numel() for weight in model.model.parameters()) == trial["costs"][
            "params.total"]


def test_status_counts_the_combinations(folder):
    """It printed 0 of 0 full-budget runs: the combinations are chosen after the start."""
    progress = StudyWatcher(folder).snapshot().progress
    assert progress.done == progress.total == 2 and progress.references == (2, 2)


def test_status_counts_fewer_combinations_than_trials(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    spec = read_study(write_study_of_trained_parent(folder, tmp_path),
                      ["trials=4", "budget=params.total <= 6k", f"out={tmp_path / 'out'}"])
    launch(spec, False, Console(file=io.StringIO()))
    n_combinations = len(json.loads((spec.out / "blocks/members.json").read_text()))
    progress = StudyWatcher(spec.out).snapshot().progress
    assert n_combinations < 4 and progress.references == (n_combinations, n_combinations)


def test_costs_of_combinations_are_those_of_their_architectures(folder):
    members = json.loads((folder / "blocks/members.json").read_text())
    assert {member["architecture"] for member in members} == {
        file.parent.name for file in folder.glob("blocks/models/*/model.safetensors")}
    protocol = load_protocol(json.loads((folder / "study.json").read_text())["protocol"])
    for member in members:
        file = folder / f"blocks/models/{member['architecture']}/architecture.yaml"
        costs = evaluate_cost(read_space(file).single_architecture().block, protocol)
        assert costs["params.total"] == member["params.total"]
        assert costs["macs.total"] == member["macs.total"]


def test_a_combination_without_replacements_is_the_parent(folder):
    trained = read_checkpoint(folder / "teacher")
    parent = Parent.from_architecture(trained.architecture)
    assert parent.assemble([]).id == trained.architecture.id


def test_changed_weights_are_refused(folder):
    _, library = read_library(folder)
    alternative = next(alternative for alternative in library.alternatives if alternative.size)
    file = weights_file(folder / "blocks", alternative)
    content = file.read_bytes()
    file.write_bytes(content[:-4] + b"\x00\x00\x00\x01")
    with refuses("damaged-weights"):
        read_weights(file)
    file.write_bytes(content)
    assert all(torch.isfinite(weight).all() for weight in read_weights(file).values())


def test_resumed_study_repeats_nothing(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    before = {file: file.stat().st_mtime_ns for file in folder.glob("blocks/**/*.safetensors")}
    text = launch(read_study(folder.parent / "tiny.yaml"), True, Console(file=io.StringIO()))
    assert "2 of 2" in text
    assert before == {file: file.stat().st_mtime_ns
                      for file in folder.glob("blocks/**/*.safetensors")}


def write_study_of_trained_parent(folder: Path, place: Path) -> Path:
    text = (folder.parent / "tiny.yaml").read_text()
    start = text.index("parent:")
    end = text.index("replace:")
    file = place / "tiny.yaml"
    parent = f"parent: {{ folder: {folder / 'teacher'}, beam: 1 }}\n"
    file.write_text(f"{text[:start]}{parent}{text[end:]}")
    return file


class InterruptsTraining(Callback):
    """Interrupts the study when its last trial has started."""

    def started(self, trial):
        if trial.number == 1:
            raise KeyboardInterrupt


def test_interrupted_study_resumes_in_each_step(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    file = write_study_of_trained_parent(folder, tmp_path)
    changes = [f"out={tmp_path / 'out'}"]

    def run(*callbacks):
        launch(read_study(file, changes), True, Console(file=io.StringIO()), callbacks=callbacks)

    def interrupt(self, job):
        interrupted.append(job.folder.name)
        raise KeyboardInterrupt

    interrupted = []
    for _ in range(5):  # four layers, and the random combinations
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(LibraryJobs, "collect", interrupt)
            run()
    assert len(set(interrupted)) == 5
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(InterruptsTraining())
    run()
    study = load_results(tmp_path / "out").study
    assert [trial.state.value for trial in study.trials] == ["complete"] * 2


@pytest.mark.full
def test_translations_in_the_data_are_kept(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    translations = folder / "teacher/corpus/train"
    changes = [f"out={tmp_path}", f"data.distilled={translations}", "data.mix_distilled=yes",
               "trials=1", "fit.checks=0"]
    launch(read_study(write_study_of_trained_parent(folder, tmp_path), changes), False,
           Console(file=io.StringIO()))
    assert not (tmp_path / "teacher/corpus").exists()
    [trial] = [json.loads(path.read_text()) for path in tmp_path.glob("trials/*/record.json")]
    assert trial["data"]["spec"]["distilled"] == str(translations)
    assert trial["data"]["spec"]["mix_distilled"]
    assert load_results(tmp_path).teacher_note


@pytest.mark.full
def test_rungs_and_interactions(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    changes = ["fit.interactions=2", "rungs.shares=[0.5]", f"out={tmp_path}",
               "budget=params.total <= 14k"]
    file = write_study_of_trained_parent(folder, tmp_path)
    launch(read_study(file, changes), False, Console(file=io.StringIO()))
    _, library = read_library(tmp_path)
    assert len(library.pairs) == 2
    for first, second in library.interactions:
        assert first.chain == second.chain and first.last + 1 == second.first
    members = json.loads((tmp_path / "blocks/members.json").read_text())
    results = load_results(tmp_path)
    states = [trial.state.value for trial in results.study.trials]
    assert len(members) == 3 and sorted(states) == ["complete", "paused", "paused"]
    rung, end = StudyWatcher(tmp_path).snapshot().rungs
    assert (rung.reached, rung.paused, end.reached) == (3, 2, 1)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("trials/*/*.json")}
    launch(read_study(file, changes), True, Console(file=io.StringIO()))
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("trials/*/*.json")}


def test_other_replacements_are_another_study(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    spec = read_study(folder.parent / "tiny.yaml", ["replace.decoder.heads=1"])
    with refuses("study-changed"):
        launch(spec, True, Console(file=io.StringIO()))


def test_dry_run_lists_replacements(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    plan = dry_run(read_study(folder.parent / "tiny.yaml"))
    assert len(plan.replacements.alternatives) == 11 and plan.planned_runs == 2
    assert not plan.replacements.unsupported


def test_unmet_budget_is_reported_before_the_parent_is_trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path)
    spec = read_study(write_study(tmp_path), ["budget=params.total <= 1k and macs.total <= 1M"])
    for call in (partial(dry_run, spec), partial(launch, spec, False, Console(file=io.StringIO()))):
        with refuses("budget-unmet", "the smallest params.total is", key="budget"):
            call()
    assert not spec.out.exists()


def test_replacements_without_export_are_left_out(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    spec = read_study(folder.parent / "tiny.yaml", [
        "protocol.artifact=ctranslate2-int8", "objectives={loss: min, artifact.bytes: min}"])
    unsupported = dry_run(spec).replacements.unsupported
    assert {alternative.name for alternative in unsupported} == {
        "encoder.attention[1] 1", "encoder.attention[2] 1", "decoder.cross[1] 1",
        "decoder.cross[2] 1"}


def test_limits_on_costs_that_are_not_additive_are_exact(folder):
    prediction, rows = load_results(folder).predict(["load.mean <= 1.2", "params.total <= 12k"])
    fitting = [row for row in range(len(prediction.front)) if evaluate_combination(
        prediction.parent, prediction.front.combination(row), ["load.mean"],
        prediction.protocol)[0] <= 1.2 and prediction.costs_of(row)["params.total"] <= 12_000]
    assert rows == fitting and 0 < len(rows) < len(prediction.front)


@pytest.mark.full
def test_report_has_scores_and_additivity(folder):
    page = write_page(load_results(folder), folder / "report.html").read_text()
    assert "Scores of replacements" in page and "Do the rises add up?" in page


def test_parent_with_another_vocabulary_names_its_tokenizer(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    file = write_study_of_trained_parent(folder, tmp_path)
    with refuses("teacher-vocab-mismatch", "tokenizer.model", key="parent", place="parent:"):
        dry_run(read_study(file, ["data.vocab=200"]))
    tokenizer = f"data.tokenizer={folder / 'teacher/tokenizer.model'}"
    assert dry_run(read_study(file, ["data.vocab=none", tokenizer])).replacements


@pytest.mark.parametrize(("change", "code"), [
    (("encoder.heads: 0 | 1", "encoder.haeds: 1"), "unknown-key"),
    (("encoder.heads: 0 | 1", "encoder.heads: 2"), "bad-value"),
    (("encoder.heads: 0 | 1", "encoder.heads: many"), "bad-value"),
    (("file: parent.yaml", "file: transformer, set: { decoder.interleaved: yes }"),
     "parent-unsupported"),
    (("trials: 2", "space: transformer"), "key-of-other-study-type")])
def test_invalid_studies_are_refused(tmp_path, monkeypatch, change, code):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path)
    with refuses(code):
        text = STUDY.replace(*change)
        if "interleaved" in change[1]:
            text = text.replace("  file: transformer, set", "  file: transformer\n  set")
        read_study(write_study(tmp_path, text))
