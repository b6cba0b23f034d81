"""Studies with a vocabulary per candidate: corpora, lengths, costs and contradictions."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.data import DataSpec, Tokenizer
from scalesearch.errors import UserError
from scalesearch.lowering import MAX_SOURCE_TOKENS
from scalesearch.report.labels import axis_label, format_protocol, protocol_conventions
from scalesearch.report.records import early_measurements
from scalesearch.spaces import read_space
from scalesearch.spaces.schema.cost_names import OWN_VOCABULARY
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.config.sections import WarmStartSpec
from scalesearch.studies.engine import setup
from scalesearch.studies.engine.corpora import load_corpora, protocol_settings
from scalesearch.studies.engine.dry_run import dry_run
from scalesearch.studies.engine.run import launch
from scalesearch.studies.results.page.facts import PageFacts
from scalesearch.studies.results.page.tables import trial_module_costs
from scalesearch.studies.results.results import load_results
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State
from scalesearch.studies.warm_start import choose_warm_start
from scalesearch.training.updates.averaging import read_weights
from tests.corpora import write_text
from tests.errors import refuses

SIZES = (48, 60)
DATA = "{ source: en, target: de, train: train, validation: val, test: test }"
SPACE = """\
space:
  width: 16 | 24
  vocab: 48 | 60
  encoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 16 | 32 } } }
  decoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 16 } } }
"""
REST = f"""\
data: {DATA}
recipe: {{ steps: 8, max_tokens: 256, beam: 1, average: none, validate_every: 2, \
score_splits: validation }}
objectives: {{ loss_per_char: min, params.total: min, macs.total: min }}
protocol: {{ lengths: corpus }}
budget: params.total <= 12k and macs.total <= 130k
reference: {{ name: mine, set: {{ width: 24, vocab: 52, encoder.ffn.relu.hidden: 32 }} }}
"""
STUDY = (f"{SPACE}{REST}rungs: {{ first: 0.25, spacing: 2, eta: 2 }}\nsampler: random\nproxies: "
         "no\nout: found\n")


@pytest.mark.parametrize(("artifact", "longest"),
                         [("ctranslate2-int8", 40), ("onnx-int8", MAX_SOURCE_TOKENS)])
def test_artifact_has_positions_for_longest_sentence(
        tmp_path: Path, artifact: str, longest: int) -> None:
    """The file of CTranslate2 holds a table of positions."""
    write_text(tmp_path)
    file = tmp_path / "long.yaml"
    text = f"study: long\n{SPACE}{REST}".replace("test: test }", "test: test, max_length: 40 }")
    file.write_text(re.sub(r"^protocol: {", f"protocol: {{ artifact: {artifact},", text,
                           flags=re.MULTILINE))
    assert load_protocol(protocol_settings(read_study(file))).max_source_length == longest


def read(text, sets=(), name="s.yaml"):
    Path(name).write_text(text)
    return read_study(Path(name), sets)


def run(sets, resume=False):
    return launch(read(STUDY, sets), resume, Console(file=io.StringIO()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study of two trials, resumed after the first one."""
    where = tmp_path_factory.mktemp("own")
    write_text(where)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        assert "1 candidate and 1 reference trained" in run(("trials=1",))
        assert "2 candidates and 1 reference trained" in run(("trials=2",), resume=True)
        yield where


@pytest.mark.full
def test_each_trial_trains_with_its_own_vocabulary(folder):
    results = load_results(folder / "found")
    done = results.study.trials.with_state(State.COMPLETE)
    protocol = load_protocol(results.study.meta.protocol)
    assert len(done) >= 3 and {52} < {trial.config["vocab"] for trial in done} <= {52, *SIZES}
    for trial in done:
        place = results.study.trial_folder(trial)
        record = results.study.record(trial)
        vocab = trial.config["vocab"]
        assert (record["data"]["vocab"], record["data"]["hash"]) == (vocab, record["corpus_hash"])
        assert Tokenizer.from_file(place / "tokenizer.model").vocab_size == vocab
        architecture = read_space(place / "architecture.yaml").single_architecture()
        assert (architecture.id, architecture.vocab) == (trial.architecture, vocab)
        costs = evaluate_cost(architecture.block, protocol.with_vocab(vocab))
        assert {name: costs[name]
                for name in trial.costs} == trial.costs and trial_module_costs(results.study, trial)
        weights = read_weights(place / "model.safetensors")
        assert sum(weight.numel() for weight in weights.values()) == trial.costs["params.total"]
        assert trial.values["loss_per_char"] == record["metrics"]["validation_loss_per_char"]


def test_rungs_and_curves_compare_losses_per_character(folder):
    results = load_results(folder / "found")
    paused = [trial for trial in results.study.trials if trial.rungs]
    for trial in paused:
        for rung_index, rung in enumerate(trial.rungs):
            left = json.loads((results.study.trial_folder(trial)
                               / f"rung-{rung_index}.json").read_text())["metrics"]
            assert rung.loss == left["validation_loss_per_char"] != left["validation_loss"]
    assert paused and PageFacts(results).loss == "validation_loss_per_char"
    facts = PageFacts(results)
    for trial in results.study.trials.with_state(State.COMPLETE):
        curve = results.study.record(trial)["curve"]
        assert [loss for _, loss in facts.curves[facts.loss][trial.number]] == [
            point["validation_loss_per_char"] for point in curve]
    assert not facts.curves["train_loss"]
    record = results.study.record(paused[0]) or {
        "config": paused[0].config, "rungs": None,
        "curve": [{"validation_loss": 1, "validation_loss_per_char": 2}, {}]}
    assert early_measurements({**record, "rungs": None,
                               "curve": [{"validation_loss": 1, "validation_loss_per_char": 2},
                                         {}]}) == {"proxy.first_loss": 2}


@pytest.mark.full
def test_lengths_are_rounded_mean_numbers_of_tokens(folder, monkeypatch):
    monkeypatch.chdir(folder)
    spec = read(STUDY)
    corpora = load_corpora(spec)
    protocol = load_results(Path("found")).study.meta.protocol
    assert protocol["vocab"] == OWN_VOCABULARY and list(protocol["lengths"]) == ["48", "52", "60"]
    for size, pair in protocol["lengths"].items():
        train = corpora.by_vocab[int(size)].train
        means = [np.mean([len(rows[i]) + 1 for i in range(len(rows))])
                 for rows in (train.source_ids, train.target_ids)]
        assert np.abs(np.array(pair) - means).max() <= 0.5
    # a smaller vocabulary makes longer sentences
    assert protocol["lengths"]["48"] > protocol["lengths"]["60"]
    description = format_protocol(protocol)
    assert all(f"{size}: {source} and {target}" in description
               for size, (source, target) in protocol["lengths"].items())
    assert "own vocabularies" in description and "own vocabularies" in axis_label(
        "params.total", protocol) and protocol_conventions(protocol)
    without = STUDY.replace("  vocab: 48 | 60\n", "").replace("vocab: 52, ", "")
    plain = dry_run(read(without.replace("test: test }",
                                         "test: test, vocab: 48 }"))).evaluator.protocol
    assert [plain.source, plain.target] == protocol["lengths"]["48"] and plain.vocab == 48


def warm_start_of(spec):
    """The warm start of a study from the one in ``found``."""
    corpora = load_corpora(spec)
    evaluator = setup.make_evaluator(spec, corpora)
    study = StudyDir(spec.out)
    study.meta = setup.study_facts(spec, corpora, evaluator, None)
    return choose_warm_start(study, spec.replace(warm_start=WarmStartSpec(("found",))), evaluator,
                             5)


def test_warm_start_imports_trials_with_same_text_and_vocabulary(folder, monkeypatch):
    monkeypatch.chdir(folder)
    spec = read(STUDY.replace("48 | 60", "44 | 48 | 60"))
    warm = warm_start_of(spec)
    matching = [trial
             for trial in load_results(Path("found")).study.trials.with_state(State.COMPLETE)
             if trial.config["vocab"] != 52]
    assert {trial.architecture for trial in warm.imported} == {
        trial.architecture for trial in matching} and not warm.enqueued
    spec = read(STUDY.replace("test: test }", "test: test, lowercase: yes }"))
    assert not warm_start_of(spec).imported


@pytest.mark.parametrize(("old", "new", "code", "line"), [
    ("test: test }", "test: test, vocab: 48 }", "given-twice", 6),
    ("test: test }", "test: test, tokenizer: some.model }", "given-twice", 6),
    ("lengths: corpus", "lengths: corpus, vocab: 48", "given-twice", 9),
    ("lengths: corpus", "lengths: corpus, source: 8", "given-twice", 9),
    ("loss_per_char: min", "loss: min", "given-twice", 8),
    ("loss_per_char: min", "perplexity: min", "given-twice", 8),
    ("proxies: no", "teacher: { file: transformer }", "given-twice", 14),
    (DATA, "{ task: language-model, train: train, validation: val, test: test }", "given-twice", 9),
])
def test_contradictions_of_open_vocabulary_are_reported(tmp_path, old, new, code, line):
    file = tmp_path / "s.yaml"
    file.write_text(STUDY.replace(old, new))
    with pytest.raises(UserError) as error:
        read_study(file)
    problems = [(problem.code, problem.position.line + 1)
             for problem in error.value.problems if problem.code != "other-model"]
    assert problems == [(code, line)], str(error.value)


@pytest.mark.parametrize(("old", "new", "code"), [
    ("vocab: 48 | 60", "vocab: = 2 * width", "too-many-vocabularies"),
    ("vocab: 48 | 60", "vocab: 40..60", "too-many-vocabularies"),
    ("  vocab: 48 | 60\n", "", "vocab-mismatch"),
    ("vocab: 48 | 60", "vocab: 48 | 5000", "vocab-size-unsupported"),
])
def test_invalid_vocabularies_are_refused_before_start(folder, monkeypatch, old, new, code):
    monkeypatch.chdir(folder)
    text = STUDY.replace(old, new)
    with pytest.raises(UserError) as error:
        load_corpora(read(text))
    assert code in (
        error.value.code,
        *(problem.code for problem in getattr(error.value, "problems", ())),
    ), error.value
    if code == "vocab-size-unsupported":  # the place in the space
        (problem,) = error.value.problems
        assert text.splitlines()[problem.position.line].lstrip().startswith("vocab: 48 | 5000")


@pytest.mark.parametrize(("vocab", "protocol", "is_noted"), [
    ("vocab: 1000", "", True), ("vocab: 80", "", False), ("vocab: 1000", "vocab: corpus", False)])
def test_other_vocabulary_of_the_space_is_noted(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vocab: str, protocol: str,
        is_noted: bool) -> None:
    monkeypatch.chdir(tmp_path)
    spec = read(f"space: {{ width: 16 | 32, cost: {{ protocol: {{ {vocab} }} }} }}\n"
                f"data: {{ builtin: grammar, pairs: 300, vocab: 80 }}\nrecipe: {{ steps: 2 }}\n"
                f"objectives: {{ bleu: max, params.total: min }}\nprotocol: {{ {protocol} }}\n")
    notes: list[str] = []
    corpora = load_corpora(spec, notes.append)
    assert corpora.protocol(spec).vocab == 80
    assert any("(80)" in note and "(1,000)" in note for note in notes) == is_noted


def test_note_about_all_vocabularies_is_reported_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path)
    for file in Path().glob("val.*"):
        file.write_text(file.read_text().replace("\n", " .\n") * 20)
    notes: list[str] = []
    load_corpora(read(STUDY), notes.append)
    assert notes and len(notes) == len({note.rpartition("warning: ")[2] for note in notes})
    assert not any(note.startswith("vocab ") for note in notes if "tokenized" in note)


def test_reference_needs_a_vocabulary(folder, monkeypatch):
    monkeypatch.chdir(folder)
    text = STUDY.replace("set: { width: 24, vocab: 52, encoder.ffn.relu.hidden: 32 }",
                         "file: transformer")
    with refuses("vocab-missing", "mine", key="reference"):
        load_corpora(read(text))


def test_all_trials_have_one_target_vocabulary(tmp_path, monkeypatch):
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = STUDY.replace("  vocab: 48 | 60\n", "  target_vocab: 44\n  embedding: { tie: none }\n")
    text = text.replace("width: 24, vocab: 52,", "width: 24,").replace("12k and", "20k and")
    with refuses("vocab-mismatch", "mine", key="reference"):
        load_corpora(read(text.replace("width: 24,", "width: 24, target_vocab: 40,")))
    with pytest.raises(UserError, match="target_vocab"):
        load_corpora(read(text.replace("target_vocab: 44", "target_vocab: 44 | 48")))
    launch(read(text, ("trials=1", "data.vocab=48")), False, Console(file=io.StringIO()))
    results = load_results(tmp_path / "found")
    done = results.study.trials.with_state(State.COMPLETE)
    assert len(done) == 2
    for trial in done:
        place = results.study.trial_folder(trial)
        tokenizer = Tokenizer.from_file(place / "tokenizer.model")
        assert (tokenizer.vocab_size, tokenizer.target.vocab_size) == (48, 44)
        weights = read_weights(place / "model.safetensors")
        assert sum(weight.numel() for weight in weights.values()) == trial.costs["params.total"]


def test_data_with_fixed_vocabulary_refuse_another(tmp_path):
    spec = DataSpec(builtin="grammar", pairs=500)
    assert spec.with_vocab(None) is spec and spec.with_vocab(
        300).fitted_vocab_size == 300 and spec.fitted_vocab_size == 2000
    assert DataSpec(builtin="grammar", vocab=300).with_vocab(300).vocab == 300
    with refuses("given-twice", 400, 300, key="data.vocab"):
        DataSpec(builtin="grammar", vocab=400).with_vocab(300)
    with refuses("given-twice", "m.model", key="data.tokenizer"):
        DataSpec(builtin="grammar", tokenizer="m.model").with_vocab(300)
