"""A tiny compression study: parent, replacements, front, fine-tuned combinations, resume."""

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from scalesearch.compression.alternatives import Parent
from scalesearch.compression.front import read_library
from scalesearch.compression.library import weights_file
from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.spaces import read_space
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.engine.run import launch
from scalesearch.studies.results.results import load_results
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
    assert len(load_results(folder).front)
    assert len(trials) == 2 and all(trial["state"] == "complete" for trial in trials)
    for trial in trials:
        assert trial["costs"]["params.total"] <= 12_000
        assert trial["costs"]["predicted.loss"] > 0
        model = read_checkpoint(trial["initial_model"]["folder"])
        assert model.architecture.id == trial["architecture"]
        assert sum(weight.numel() for weight in model.model.parameters()) == trial["costs"][
            "params.total"]


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
