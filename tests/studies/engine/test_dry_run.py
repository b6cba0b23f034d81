"""A dry run lists the first proposals of the run."""

import io
import re
import sys

import pytest
from rich.console import Console

from scalesearch.cli.study.run import dry_run_to_json
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.engine.corpora import load_corpora
from scalesearch.studies.engine.dry_run import dry_run, first_proposals
from scalesearch.studies.engine.run import describe_start, launch
from scalesearch.studies.engine.setup import (
    build_sampler,
    make_evaluator,
    open_study,
    study_facts,
)
from scalesearch.studies.executors.local import InProcessRunner
from scalesearch.studies.monitor.format import format_value
from scalesearch.studies.monitor.heartbeat import read_owner
from scalesearch.studies.trials.trial import State
from tests.errors import refuses
from tests.studies.fakes import architecture_of, make_driver, make_plan, make_sampler_of

NAMED = FixedArchitecture("named", architecture_of({"width": 24, "depth": 2, "kind": "plain"}),
                          None)


@pytest.mark.parametrize("kind", ["bayes", "local", "tpe", "random"])
@pytest.mark.parametrize("named", [(), (NAMED,)], ids=["alone", "with a reference"])
def test_dry_run_lists_first_proposals_of_run(tmp_path, kind, named):
    plan = make_plan(4, most=2000, references=named)
    driver = make_driver(tmp_path / "run", plan, kind=kind)
    driver.run()
    proposals = first_proposals(plan.spec, plan.evaluator, make_sampler_of(plan, kind))
    run = [trial for trial in driver.trials if trial.origin != "reference"]
    assert len(proposals) == 4 - len(named)  # startup trials include the reference
    assert [trial.params for trial in proposals] == [
        trial.params for trial in run[: len(proposals)]
    ]
    states = {State.COMPLETE: State.PENDING}
    assert [trial.state for trial in proposals] == [states.get(trial.state, trial.state)
                                            for trial in run[: len(proposals)]]


def test_number_of_proposals_is_limited():
    for trials in (1, 2):
        plan = make_plan(trials)
        assert len(first_proposals(plan.spec, plan.evaluator, make_sampler_of(plan))) == trials


STUDY = """
study: tiny
data: {{ builtin: grammar, pairs: 200, vocab: 120 }}
recipe: {{ steps: 4, max_tokens: 256 }}
objectives: {{ bleu: {direction}, params.total: min }}
protocol: {{ name: forward, source: 8, target: 8, vocab: 120 }}
budget: params.total <= {budget}
space:
  width: {width}
  embedding: {{ tie: all }}
  encoder: {{ depth: 1, heads: 4, ffn: {{ relu: {{ hidden: 16 | 24 }} }} }}
  decoder: {{ depth: 1, heads: 2, ffn: {{ relu: {{ hidden: 16 }} }} }}
reference: {reference}
trials: {trials}
{more}
"""
DEFAULTS = {"direction": "max", "width": 16, "reference": [], "trials": 2, "more": "",
            "budget": "40k"}


def dry_run_text(folder, monkeypatch, console_width=300, **changes):
    monkeypatch.chdir(folder)
    (folder / "tiny.yaml").write_text(STUDY.format(**{**DEFAULTS, **changes}))
    findings = dry_run(read_study(folder / "tiny.yaml"))
    output = io.StringIO()
    findings.show(Console(file=output, width=console_width))
    return dry_run_to_json(findings), output.getvalue()


def test_dry_run_prints_the_hyperparameters_of_proposals(tmp_path, monkeypatch):
    record, text = dry_run_text(tmp_path, monkeypatch, width="16 | 24")
    described = dict(line.split(": ", 1) for line in text.splitlines()
                     if line.startswith(("trial ", "all: ")))
    for number, proposal in enumerate(record["proposals"]):
        values = [f"{name} {value}" for name, value in proposal["params"].items()]
        printed = [described[f"trial {number}"], *filter(None, [described.get("all")])]
        assert sorted(", ".join(printed).split(", ")) == sorted(values)


def test_sizes_of_a_type_follow_it_in_each_proposal(tmp_path, monkeypatch):
    types = "{{ one of: {{ relu: {{ hidden: 16 | 24 }}, geglu: {{ hidden: 8 | 16 }} }} }}"
    study = STUDY.replace("{{ relu: {{ hidden: 16 | 24 }} }}", types)
    study = study.replace("heads: 2", "heads: 2 | 4")
    monkeypatch.setattr(sys.modules[__name__], "STUDY", study)
    _, text = dry_run_text(tmp_path, monkeypatch, width="16 | 24", trials=6)
    for ffn in ("relu", "geglu"):
        assert f"encoder.ffn {ffn}, encoder.ffn.{ffn}.hidden" in text
    assert all(line.index("ffn.") < line.index("decoder.heads") for line in text.splitlines()
               if line.startswith("trial ") and "decoder.heads" in line)


def test_proposals_have_the_costs_of_all_objectives(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "STUDY", STUDY.replace(
        "params.total: min", "params.total: min, memory.cache: min"))
    record, text = dry_run_text(tmp_path, monkeypatch)
    table = text[text.index("First proposals"):text.index("trial 0: ")]
    assert "memory" in table and table.count("params") == 1
    first = format_value(record["proposals"][0]["costs"]["memory.cache"], "memory.cache")
    assert f" {first} " in table


def test_names_of_weights_are_broken_at_dots(tmp_path, monkeypatch):
    _, text = dry_run_text(tmp_path, monkeypatch, console_width=80)
    table = text[text.index("Learning rates of"):]
    assert "encoder.layers.0." in table and "attention.query.weight" in table
    assert max(map(len, table.splitlines())) <= 80


def test_dry_run_names_references_over_budget(tmp_path, monkeypatch):
    reference = "[{name: large, set: {width: 256, encoder.ffn.relu.hidden: 16}}]"
    record, text = dry_run_text(tmp_path, monkeypatch, reference=reference)
    (large,) = record["references"]
    assert large["label"] == "large" and not large["is_feasible"]
    assert "Reference large" in text and "params.total <= 40k" in text


def test_dry_run_warns_of_uneven_heads_and_counts_rungs(tmp_path, monkeypatch):
    _, text = dry_run_text(tmp_path, monkeypatch, width=18, trials=9,
                           more="rungs: { first: 0.3333, spacing: 3, eta: 3 }")
    assert "4 heads do not divide width 18" in text
    started, completed = map(int, re.findall(
        r"about (\d+) candidates, (\d+) of them to the end", text)[0])
    assert started == pytest.approx(3 * completed, abs=3)
    assert started / 3 + completed * 2 / 3 == pytest.approx(9, abs=1)


def test_dry_run_compares_the_length_in_costs_with_the_window(tmp_path, monkeypatch):
    study = """
study: lm
data: {{ task: language-model, builtin: grammar, pairs: 200, vocab: 120, window: 64 }}
recipe: {{ steps: 4, max_tokens: 256 }}
objectives: {{ bits_per_byte: min, params.total: min }}
space: {{ model: decoder-only, width: {width}, decoder: {{ depth: 1 | 2, heads: 2 }} }}
trials: {trials}
{more}
"""
    monkeypatch.setattr(sys.modules[__name__], "STUDY", study)
    for protocol, notes in (("{ source: 32, target: 32 }", 1), ("{ length: 64 }", 0)):
        _, text = dry_run_text(tmp_path, monkeypatch, more=f"protocol: {protocol}")
        assert text.count("{length: 64}") == notes


def test_dry_run_and_run_name_parameters_that_no_model_reads(tmp_path, monkeypatch):
    space = "space:\n  model: decoder-only\n  adapt: lora | bias\n"
    monkeypatch.setattr(sys.modules[__name__], "STUDY", STUDY.replace("space:\n", space))
    _, text = dry_run_text(tmp_path, monkeypatch)
    lines = describe_start(read_study(tmp_path / "tiny.yaml"), InProcessRunner(print))
    for output in (text, "\n".join(lines)):
        assert re.search("warning: no effect in decoder-only models: .*adapt", output)


@pytest.mark.parametrize("objectives, warns", [("params.total: min, macs.total: min", True),
                                               ("loss: min, macs.total: min", False)])
def test_dry_run_and_run_warn_of_objectives_without_quality(
        tmp_path, monkeypatch, objectives, warns):
    monkeypatch.setattr(sys.modules[__name__], "STUDY", STUDY.replace(
        "bleu: {direction}, params.total: min", objectives))
    _, text = dry_run_text(tmp_path, monkeypatch)
    lines = describe_start(read_study(tmp_path / "tiny.yaml"), InProcessRunner(print))
    for output in (text, "\n".join(lines)):
        assert ("warning: no objective measures quality" in output) == warns


@pytest.mark.parametrize("vocab, warns", [(500, True), (120, False), ("corpus", False)])
def test_dry_run_warns_of_costs_for_another_vocabulary(tmp_path, monkeypatch, vocab, warns):
    monkeypatch.setattr(sys.modules[__name__], "STUDY",
                        STUDY.replace("target: 8, vocab: 120", f"target: 8, vocab: {vocab}"))
    record, text = dry_run_text(tmp_path, monkeypatch)
    warnings = [note for note in record["notes"] if note.startswith("warning")]
    assert len(warnings) == warns
    assert all("500" in note and "120" in note and note in text for note in warnings)
    assert [row["params"] for row in record["learning_rates"]
            if row["role"] == "table"] == [120 * 16]


@pytest.mark.parametrize("code, changes", [
    ("bad-direction", {"direction": "min"}),
    ("too-few-resources", {"more": "resources: { gpus_per_trial: 1 }"}),
    ("open-parameters", {"reference": "[{name: open, set: {width: 32}}]"}),
    ("vocab-mismatch", {"reference":
                        "[{name: own, set: {vocab: 100, encoder.ffn.relu.hidden: 16}}]"}),
])
def test_dry_run_refuses_what_a_run_refuses(tmp_path, monkeypatch, code, changes):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with refuses(code):
        dry_run_text(tmp_path, monkeypatch, **changes)


def test_dry_run_reads_the_text(tmp_path, monkeypatch):
    for split in ("train", "val", "test"):
        lines = [f"{'a ' * (number % 9)}b {number}" for number in range(120)]
        (tmp_path / f"{split}.en").write_text("\n".join(lines))
        (tmp_path / f"{split}.de").write_text("\n".join(lines))
    files = "source: en, target: de, train: train, validation: val, test: test"
    monkeypatch.setattr(sys.modules[__name__], "STUDY", STUDY.replace(
        "builtin: grammar, pairs: 200, vocab: 120", f"{files}, vocab: 40"))
    record, text = dry_run_text(tmp_path, monkeypatch)
    assert any("equal sides" in note and note in text for note in record["notes"])
    with (tmp_path / "train.de").open("a") as file:
        file.write("\none more")
    with refuses("unequal-lines"):
        dry_run_text(tmp_path, monkeypatch)


def test_dry_run_says_whether_the_study_can_be_resumed(tmp_path, monkeypatch):
    dry_run_text(tmp_path, monkeypatch)
    spec = read_study(tmp_path / "tiny.yaml")
    corpora = load_corpora(spec, str)
    evaluator = make_evaluator(spec, corpora)
    study = open_study(spec, evaluator, study_facts(spec, corpora, evaluator, None))
    study.propose(first_proposals(spec, evaluator, build_sampler(spec, evaluator))[0])
    _, text = dry_run_text(tmp_path, monkeypatch)
    assert "0 candidates of these are complete; --resume trains the others" in text
    _, text = dry_run_text(tmp_path, monkeypatch, budget="30k")
    assert "--resume is refused" in text and "are complete" not in text
    trial = study.trial_folder(study.trials[0])
    trial.mkdir(parents=True)
    (trial / "record.json").write_text("{}")
    study.log.file.write_bytes(b"")
    with refuses("log-damaged", trial.name):
        dry_run_text(tmp_path, monkeypatch)


def test_progress_of_a_small_space_counts_its_configurations(tmp_path, monkeypatch):
    dry_run_text(tmp_path, monkeypatch, trials=5)
    launch(read_study(tmp_path / "tiny.yaml", ["backend=inprocess"]), False,
           Console(file=io.StringIO()))
    assert read_owner(tmp_path / "runs" / "tiny").candidates == 2
