"""Latency foretold: features of the bill, and what a fit makes of them."""

import math

import numpy as np
import pytest

from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.cost.latency import compute_features, latency_interval
from scalesearch.cost.latency_model import DecodingSetup, jackknife_plus_interval, load_latency_model
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.library import find_file
from scalesearch.space import Space, read_space
from scalesearch.space.assembly.architecture import assemble
from scalesearch.study.trials.evaluator import Evaluator
from tests.cost.fits import fit_file, fit_of
from tests.errors import refuses

SETUP = DecodingSetup(source=7, target=5)


def block(name: str = "plain"):
    return read_space(find_file(f"small/{name}", "spaces")).single_architecture().block


def test_products_of_a_plain_model_are_those_of_its_ledger() -> None:
    """Whether the lowering or the ledger says them: the same multiply-adds, in fewer products, since some are fused."""
    protocol = load_protocol({"name": "decode", "source": 7, "target": 5, "vocab": 300})
    ours, theirs = (compute_features(block(), artifact, SETUP, protocol)
                    for artifact in ("onnx-none", "ctranslate2-int8"))
    work = [name for name in ours if name.endswith((".macs", ".attention"))]
    assert {name: ours[name] for name in work} == {name: theirs[name] for name in work}
    assert sum(ours[name] for name in work) == evaluate_cost(block(), protocol)["macs.total"]
    assert theirs["encoder.products"] < ours["encoder.products"]


@pytest.mark.parametrize("artifact", ["ctranslate2-int8", "onnx-none"])
def test_a_population_is_predicted_as_each_of_it_alone(tmp_path, artifact) -> None:
    space = read_space(find_file("small/edgeformer", "spaces"))
    widths = np.array([16, 24, 64])
    protocol = load_protocol({"latency": fit_file(tmp_path, artifact), "vocab": 300})
    base = dict(space.single_architecture().config)
    found, built = evaluate_population_costs(base | {"width": widths}, 3, protocol, ["latency.predicted"])
    alone = [evaluate_cost(assemble(base | {"width": int(width)}).block,
                           protocol)["latency.predicted"] for width in widths]
    assert built.all() and found["latency.predicted"].tolist() == alone and alone[0] < alone[2]


def test_a_protocol_names_device_and_fit(tmp_path) -> None:
    file = fit_file(tmp_path)
    protocol = load_protocol({"latency": file})
    assert load_protocol(protocol.settings).with_vocab(300).latency_model_path == file
    fit = load_latency_model(file)
    for words in (str(protocol), protocol.to_json()["fit"]):
        assert fit.id in words and "A processor" in words and "held-out error" in words
    assert fit_of(weights=[0.0] * len(fit.features)).id != fit.id


def test_what_no_fit_can_predict_is_refused(tmp_path) -> None:
    bill = evaluate_cost(block(), load_protocol({"vocab": 300}))
    with refuses("no-latency-fit"):
        bill["latency.predicted"]
    lost = evaluate_cost(block(),
                         load_protocol({"vocab": 300, "latency": str(tmp_path / "lost.json")}))
    with refuses("no-latency-fit", "lost.json"):
        lost["latency.predicted"]
    (tmp_path / "space.yaml").write_text("width: 64\n")
    with refuses("no-latency-fit", "space.yaml", "is not a latency model"):
        load_latency_model(str(tmp_path / "space.yaml"))
    with refuses("file-damaged", "onnx-none.json"):
        load_latency_model(fit_file(tmp_path, weights=[1.0]))
    other = load_protocol({"vocab": 300, "latency": fit_file(tmp_path, "ctranslate2-int8")})
    with refuses("unbuildable", "ctranslate2"):
        evaluate_cost(block("anthe"), other)["latency.predicted"]


def test_an_interval_has_the_prediction_in_it_and_few_measurements_promise_nothing(
        tmp_path) -> None:
    protocol = load_protocol({"vocab": 300, "latency": fit_file(tmp_path)})
    said = evaluate_cost(block(), protocol)["latency.predicted"]
    low, high = latency_interval(block(), protocol)
    # the 19th of 20 on either side
    assert low == pytest.approx(said * 0.81) and high == pytest.approx(said * 1.19)
    assert jackknife_plus_interval(np.ones(8), np.full(8, 0.1)) == (0.0, math.inf)


def test_a_space_names_its_fit_from_its_own_folder(tmp_path) -> None:
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


def test_a_candidate_of_a_study_has_it_and_one_that_the_format_cannot_hold_is_infeasible(
        tmp_path) -> None:
    """Whether the limits name it or not."""
    space = Space.parse("width: 16\nencoder: { residual_scores: none | global }\ndecoder: { depth: "
                        "1 }\n")
    evaluator = Evaluator(
        space, load_protocol({"vocab": 60, "latency": fit_file(tmp_path, "ctranslate2-int8")}), ())
    held, refused = (evaluator.evaluate({"encoder.residual_scores": scores})
                     for scores in ("none", "global"))
    assert held.is_feasible and held.costs["latency.predicted"] > 0
    assert not refused.is_feasible and "ctranslate2" in refused.reason
