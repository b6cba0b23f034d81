"""``study confirm`` and ``study train`` with fake training."""

import json
from pathlib import Path

import pytest

from scalesearch.spaces import read_space
from scalesearch.studies.executors.worker import finish_job
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Origin
from tests.studies.quick_studies import study_command

STUDY = """\
study: further
data: { builtin: grammar, pairs: 300, vocab: 300 }
recipe: { steps: 6, max_tokens: 256, beam: 1 }
objectives: { loss: min, params.total: min }
protocol: { source: 12, target: 12 }
space:
  width: 16 | 32 | 48
  encoder: { depth: 1..4, heads: 2, head_dim: 8, ffn: { relu: { hidden: 32 } } }
  decoder: { depth: 1, heads: 2, head_dim: 8, ffn: { relu: { hidden: 32 } } }
reference:
  - { name: small, set: { width: 16, encoder.depth: 1 } }
  - { name: large, set: { width: 48, encoder.depth: 4 } }
sampler: { type: random, seed: 1 }
budget: params.total <= 30k
trials: 3
out: found
"""


def measure(place, job):
    config = read_space(place / "architecture.yaml").single_architecture().config
    loss = 5 + job["seed"] / 10 - config["width"] / 100 - config["encoder.depth"] / 50
    return {"loss": loss, "bleu": 10.0, "split": "valid"}


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SCALESEARCH_MEASURE", "0")
    return study_command(tmp_path, monkeypatch, capsys, tmp_path / "cache", STUDY, measure)


@pytest.mark.full
def test_confirm_trains_further_seeds_and_compares_with_reference(call):
    call("run", "s.yaml")
    table = json.loads(call("confirm", "found", "--seeds", "2", "--json"))
    trials = StudyDir(Path("found")).load().trials
    originals = {trial.original for trial in trials.replicates()}
    references = {trial.number for trial in trials.with_origin(Origin.REFERENCE)}
    assert references <= originals  # each with another seed
    assert all(trial.seed != 1 for trial in trials.replicates())
    # the large reference is better, but exceeds the budget
    assert table["base"] == "small" and table["noise"]["df"] == len(originals)
    rows = {row["name"]: row for row in table["rows"]}
    assert rows["small"]["n_seeds"] == rows["large"]["n_seeds"] == 2
    assert all(row["difference"] <= 0 for row in rows.values())
    assert any(name.startswith("trial ") for name in rows)
    before = len(trials)
    call("confirm", "found", "--seeds", "2", "--base", "large")
    assert len(StudyDir(Path("found")).load().trials) == before


def test_confirm_needs_a_finished_search_with_a_reference(call):
    call("run", "s.yaml", "--set", "reference=[]")
    assert "no trained reference" in call("confirm", "found", status=2)
    owner = Path("found/owner.json")
    owner.write_text(owner.read_text().replace("finished", "stopped"))
    assert "has not finished" in call("confirm", "found", status=2)


def test_train_repeats_a_trial_with_a_longer_recipe(call, monkeypatch):
    call("run", "s.yaml")
    jobs = []

    def train(folder):
        def run(place, job):
            jobs.append(job)
            return {"state": "complete", "metrics": measure(Path(place), job)}

        finish_job(Path(folder), run)

    monkeypatch.setattr("scalesearch.studies.executors.worker.train_job", train)
    result = json.loads(call("train", "found", "1", "--length", "2.5", "--json"))
    (job,) = jobs
    source = StudyDir(Path("found")).load()
    first = json.loads((source.trial_folder(source.trials[1]) / "job.json").read_text())
    assert job["recipe"] == {**first["recipe"], "steps": 15} and job["data"] == first["data"]
    assert result["metrics"]["loss"] == source.trials[1].values["loss"]
    (folder,) = Path("found/longer").iterdir()
    assert folder.name.startswith("0001-") and (folder / "architecture.yaml").is_file()
    call("train", "found", "1", "--length", "2.5")
    assert len(jobs) == 1  # finished before
    call("train", "found", "1", "--length", "3", "--to", str(folder), status=2)
