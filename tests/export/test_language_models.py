"""Exported language models: scores of texts and continuations, in the runtime of the artifact."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

import scalesearch as ss
from scalesearch.cli import generate as generate_verb
from scalesearch.cli import score as score_verb
from scalesearch.data import load_corpus
from scalesearch.export.base import ArtifactDecoder
from scalesearch.export.export import export_training
from scalesearch.export.huggingface.format import NativeDecoder
from scalesearch.export.torch_ import TorchDecoder
from scalesearch.tasks import TASKS
from scalesearch.training import read_checkpoint, train
from tests.cli.test_train import run
from tests.errors import refuses
from tests.tasks.small import model_for, spec_of
from tests.training.conftest import recipe

os.environ["HF_MODULES_CACHE"] = tempfile.mkdtemp()
TASK = TASKS["language-model"]
PLAIN = {"embedding__positions": "none", "decoder__rotary": True, "norm_kind": "rms",
         "decoder__projection_bias": False, "decoder__ffn": "swiglu", "decoder__ffn_bias": False,
         "embedding__output_bias": False, "embedding__scaled": False}
MODELS = {"llama": PLAIN,
          "own code": PLAIN | {"decoder__local": "ssru", "decoder__local__join": "sum"}}


@pytest.fixture(scope="module", params=MODELS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language-model")
    spec = spec_of(TASK, folder).with_absolute_paths(folder)
    train(model_for(TASK, **MODELS[request.param]), load_corpus(spec, folder / "cache"),
          recipe(steps=30, precision="fp32"), folder / "model")
    return folder


@pytest.fixture(scope="module", params=["onnx", "huggingface"])
def exported(request: pytest.FixtureRequest, trained: Path) -> Path:
    pytest.importorskip("transformers" if request.param == "huggingface" else "onnxruntime")
    folder = trained / request.param
    export_training(trained / "model", folder, request.param, sentences=5)
    return folder


def test_exported_language_model_is_scored_and_continued_as_the_trained_one(
        trained: Path, exported: Path) -> None:
    done = run(score_verb, trained / "model", exported, "--text", trained / "test.txt", "--json")
    assert done.exit_code == 0, done.output
    expected, scores = json.loads(done.stdout)["models"]
    for name, value in expected.items():
        if name != "model":
            assert scores[name] == (pytest.approx(value, rel=1e-4) if isinstance(value, float)
                                    else value), name
    prompt = "the big dog\none two"
    # several windows of 12 tokens
    greedy, expected_greedy = (
        run(generate_verb, folder, prompt, "--temperature", 0, "--tokens", 40).stdout
        for folder in (exported, trained / "model"))
    assert greedy == expected_greedy and greedy.startswith(prompt)
    model = ss.load(exported)
    assert prompt + model.generate(prompt, 40, temperature=0) + "\n" == greedy
    assert model.generate("", 30, seed=1) != model.generate("", 30, seed=2)
    assert model.score_text(trained / "test.txt")["loss"] == pytest.approx(scores["loss"])
    with refuses("no-checkpoint", "exported model"):  # for commands that need the weights
        read_checkpoint(exported)


def test_version_of_the_runtime_is_noted(trained: Path, exported: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(exported, other)
    file = other / "artifact.json"
    artifact = json.loads(file.read_text())
    runtime = {"onnx": "onnxruntime", "huggingface": "transformers"}[artifact["format"]]
    artifact["versions"][runtime] = "0.0.1"
    file.write_text(json.dumps(artifact))
    for done in (run(score_verb, other, "--text", trained / "test.txt"),
                 run(generate_verb, other, "one", "--tokens", 2)):
        assert done.exit_code == 0 and "0.0.1" in done.output
    with pytest.warns(UserWarning, match=r"0\.0\.1"):
        ss.load(other).generate("one", 2)


def test_artifact_of_an_earlier_version_is_refused(
        exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for decoder in (TorchDecoder, NativeDecoder):
        monkeypatch.setattr(decoder, "language_model", ArtifactDecoder.language_model)
    with refuses("no-checkpoint", exported, "again"):
        ss.load(exported).generate("one")


def test_exported_translation_model_is_not_a_language_model(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    task = TASKS["translation"]
    spec = spec_of(task, tmp_path).with_absolute_paths(tmp_path)
    train(model_for(task), load_corpus(spec, tmp_path / "cache"), recipe(steps=1),
          tmp_path / "model")
    export_training(tmp_path / "model", tmp_path / "out", "onnx", sentences=2)
    with refuses("other-task", "translation"):
        ss.load(tmp_path / "out").generate("one")
