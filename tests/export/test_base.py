"""Training runs scored by their artifact: equal scores in float, and refusals."""


import pytest

from scalesearch.export import base
from scalesearch.export.base import artifact_decoder, check_decoder, resolve_decoder_format
from scalesearch.training import train
from scalesearch.training.scoring.evaluate import DecodingOptions
from tests.errors import refuses
from tests.training.conftest import recipe, tiny

FLOAT32 = recipe(steps=30, max_tokens=400, precision="fp32", beam=1)


@pytest.mark.full
@pytest.mark.parametrize("name", ["ctranslate2-none", "onnx-none"])
def test_score_of_artifact_equals_score_of_model(corpus, tmp_path, name):
    pytest.importorskip(name.partition("-")[0].replace("onnx", "onnxruntime"))
    own = train(tiny(width=32), corpus, FLOAT32, tmp_path / "own")
    by_artifact = FLOAT32.replace(decode_with=name)
    result = train(tiny(width=32), corpus, by_artifact, tmp_path / "model",
                  open_artifact=artifact_decoder)
    assert (
        result.metrics["decoding"] == f"greedy, by {name}" == result.metrics["test"]["decoding"]
    )
    assert own.metrics["decoding"] == "greedy"
    same = ("bleu", "bleu_signature", "loss", "validation_loss")
    assert {key: result.metrics[key] for key in same} == {key: own.metrics[key] for key in same}


def test_artifact_translates_for_the_score(corpus, trained_folder, monkeypatch):
    pytest.importorskip("ctranslate2")
    with artifact_decoder(trained_folder, "ctranslate2-int8") as decode:
        decoded = decode(corpus.validation, DecodingOptions(1))
    assert len(decoded) == len(corpus.validation) and all(len(best) == 1 for best in decoded)
    called = []
    monkeypatch.setattr(base.ExportFormat, "package_versions",
                        lambda self: called.append(self.name))
    check_decoder(FLOAT32.replace(decode_with="onnx-int8"), tiny(width=32).block)
    assert called == ["onnx"]


def test_missing_export_package_is_refused(corpus, tmp_path):
    with refuses("exporter-missing", "onnx-int8"):
        train(tiny(), corpus, recipe(decode_with="onnx-int8"), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_unsupported_architecture_is_refused_before_training(monkeypatch):
    how = recipe(decode_with="ctranslate2-int8")
    gated = tiny(encoder__head_dim=8, encoder__gate="QgV").block
    with refuses("not-exportable", "gate"):
        check_decoder(how, gated)
    check_decoder(recipe(), gated)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refuses("package-missing", "[export]", key="recipe.decode_with"):
        resolve_decoder_format(how)
