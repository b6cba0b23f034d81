"""Predicted latency: features of architectures, and latency models."""

import math

import numpy as np
import pytest

from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.cost.latency import compute_features, latency_interval
from scalesearch.cost.latency_model import (
    DecodingSetup,
    jackknife_plus_interval,
    load_latency_model,
)
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.library import find_file
from scalesearch.spaces import Space, read_space
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.studies.trials.evaluator import Evaluator
from tests.architectures import transformer_config
from tests.cost.fits import fit_file, fit_of
from tests.errors import refuses

SETUP = DecodingSetup(source=7, target=5)


def block(name: str = "plain"):
    return read_space(find_file(f"small/{name}", "spaces")).single_architecture().block


def test_features_of_runtimes_have_equal_macs() -> None:
    """CTranslate2 needs fewer products because it fuses some of them."""
    protocol = load_protocol({"name": "decode", "source": 7, "target": 5, "vocab": 300})
    onnx, ctranslate2 = (compute_features(block(), artifact, SETUP, protocol)
                         for artifact in ("onnx-none", "ctranslate2-int8"))
    work = [name for name in onnx if name.endswith((".macs", ".attention"))]
    assert {name: onnx[name] for name in work} == {name: ctranslate2[name] for name in work}
    assert sum(onnx[name] for name in work) == evaluate_cost(block(), protocol)["macs.total"]
    assert ctranslate2["encoder.products"] < onnx["encoder.products"]


def test_all_experts_of_a_mixture_work_in_onnx() -> None:
    """Graphs have static shapes; other formats compute the active experts."""
    protocol = load_protocol({"name": "decode", "source": 7, "target": 5, "vocab": 300})
    sizes = {f"encoder__ffn__{key}": size
             for key, size in (("experts", 4), ("shared", 0), ("expert_hidden", 8),
                               ("expert", "swiglu"))}
    one_active, all_active = (assemble(transformer_config(
        encoder__ffn="mixture", encoder__ffn__active=active, **sizes)).block for active in (1, 4))
    onnx, huggingface = ([compute_features(model, artifact, SETUP, protocol)
                          for model in (one_active, all_active)]
                         for artifact in ("onnx-none", "huggingface-none"))
    assert onnx[0] == onnx[1] == huggingface[1]
    for name in ("encoder.products", "encoder.macs", "encoder.numbers"):
        assert huggingface[0][name] < onnx[0][name]
    bytes_of_one, bytes_of_all = (evaluate_cost(model, load_protocol(
        {"vocab": 300, "artifact": "onnx-int8"}))["artifact.bytes"]
        for model in (one_active, all_active))
    assert bytes_of_one == bytes_of_all


@pytest.mark.parametrize("artifact", ["ctranslate2-int8", "onnx-none"])
def test_predictions_of_a_population_equal_single_candidates(tmp_path, artifact) -> None:
    space = read_space(find_file("small/edgeformer", "spaces"))
    widths = np.array([16, 24, 64])
    protocol = load_protocol({"latency": fit_file(tmp_path, artifact), "vocab": 300})
    base = dict(space.single_architecture().config)
    costs, is_buildable = evaluate_population_costs(base | {"width": widths}, 3, protocol,
                                                    ["latency.predicted"])
    expected = [evaluate_cost(assemble(base | {"width": int(width)}).block,
                              protocol)["latency.predicted"] for width in widths]
    assert is_buildable.all() and costs["latency.predicted"].tolist() == expected
    assert expected[0] < expected[2]


def test_protocol_names_device_and_model(tmp_path) -> None:
    file = fit_file(tmp_path)
    protocol = load_protocol({"latency": file})
    assert load_protocol(protocol.settings).with_vocab(300).latency_model_path == file
    fit = load_latency_model(file)
    for words in (str(protocol), protocol.facts["fit"]):
        assert fit.id in words and "A processor" in words and "held-out error" in words
    assert fit_of(weights=[0.0] * len(fit.features)).id != fit.id


def test_new_calibration_replaces_the_predictions(tmp_path) -> None:
    """A notebook kept those of the first file."""
    first = load_latency_model(fit_file(tmp_path))
    assert load_latency_model(fit_file(tmp_path, seed=1)).seed == 1 != first.seed


def test_unavailable_predictions_are_rejected(tmp_path) -> None:
    breakdown = evaluate_cost(block(), load_protocol({"vocab": 300}))
    with refuses("no-latency-fit"):
        breakdown["latency.predicted"]
    protocol_without_model = load_protocol({"vocab": 300, "latency": str(tmp_path / "lost.json")})
    without_model = evaluate_cost(block(), protocol_without_model)
    with refuses("no-latency-fit", "lost.json"):
        without_model["latency.predicted"]
    (tmp_path / "space.yaml").write_text("width: 64\n")
    with refuses("no-latency-fit", "space.yaml", "is not a latency model"):
        load_latency_model(str(tmp_path / "space.yaml"))
    with refuses("file-damaged", "onnx-none.json"):
        load_latency_model(fit_file(tmp_path, weights=[1.0]))
    protocol = load_protocol({"vocab": 300, "latency": fit_file(tmp_path, "ctranslate2-int8")})
    with refuses("unbuildable", "ctranslate2"):
        evaluate_cost(block("anthe"), protocol)["latency.predicted"]
    encoder = assemble(transformer_config(model="encoder-only", classes=3)).block
    for artifact in ("ctranslate2-int8", "onnx-none"):  # a pass over a text was its latency
        protocol = load_protocol({"vocab": 300, "latency": fit_file(tmp_path, artifact)})
        with refuses("unbuildable", "encoder-only"):
            evaluate_cost(encoder, protocol)["latency.predicted"]


def test_interval_contains_the_prediction(tmp_path) -> None:
    protocol = load_protocol({"vocab": 300, "latency": fit_file(tmp_path)})
    predicted = evaluate_cost(block(), protocol)["latency.predicted"]
    low, high = latency_interval(block(), protocol)
    # the 19th of 20 residuals on either side
    assert low == pytest.approx(predicted * 0.81) and high == pytest.approx(predicted * 1.19)
    assert jackknife_plus_interval(np.ones(8), np.full(8, 0.1)) == (0.0, math.inf)


def test_latency_model_is_relative_to_the_space(tmp_path) -> None:
    file = tmp_path / "space.yaml"
    fit_file(tmp_path)
    text = find_file("small/plain", "spaces").read_text()
    assert "cost:" not in text
    protocol = "{ latency: onnx-none.json }"
    budgets = "{ fast: latency.predicted <= 20 }"
    file.write_text(f"{text}\ncost:\n  protocol: {protocol}\n  budgets: {budgets}\n")
    space = read_space(file)
    assert space.protocol["latency"] == str(tmp_path / "onnx-none.json")
    assert space.budgets["fast"].costs == {"latency.predicted"}


def test_study_candidates_have_latency_or_are_infeasible(tmp_path) -> None:
    """Also if no limit uses the latency."""
    space = Space.parse("width: 16\nencoder: { residual_scores: none | global }\ndecoder: { depth: "
                        "1 }\n")
    evaluator = Evaluator(
        space, load_protocol({"vocab": 60, "latency": fit_file(tmp_path, "ctranslate2-int8")}), ())
    supported, unsupported = (evaluator.evaluate({"encoder.residual_scores": scores})
                              for scores in ("none", "global"))
    assert supported.is_feasible and supported.costs["latency.predicted"] > 0
    assert not unsupported.is_feasible and "ctranslate2" in unsupported.reason
