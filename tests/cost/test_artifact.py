"""Bytes of an exported model, foretold."""

import numpy as np
import pytest

from scalesearch.cost import evaluate_cost, find_protocol, load_protocol
from scalesearch.cost.artifact import artifact_bytes
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.library import find_file
from scalesearch.nn import build_model
from scalesearch.space import read_space
from scalesearch.space.assembly.architecture import assemble
from scalesearch.train.updates.averaging import write_weights
from tests.errors import refuses

SMALL = ("small/plain", "small/partialformer", "small/anthe", "small/edgeformer")


@pytest.mark.parametrize("name", SMALL)
def test_weights_file_is_as_large_as_foretold(name, tmp_path) -> None:
    """To the byte but for the head, of which a twentieth of a per cent may be missing."""
    block = read_space(find_file(name, "spaces")).single_architecture().block
    words = 500
    write_weights(tmp_path / "w", build_model(block, vocab=words).state_dict())
    whole = artifact_bytes(block, load_protocol({"vocab": words, "artifact": "torch"}))
    vocabulary = round(words * (4.74 - 0.83 + 9.05))
    assert whole - vocabulary == pytest.approx((tmp_path / "w").stat().st_size, rel=1e-3)


def test_without_a_named_format_there_is_no_such_cost() -> None:
    block = read_space(find_file("small/plain", "spaces")).single_architecture().block
    bill = evaluate_cost(block, find_protocol("forward", 5, 5, 100))
    assert "artifact.bytes" not in bill.values
    with refuses("artifact-format-missing"):
        bill["artifact.bytes"]
    with refuses("unknown-artifact-format", "zip", "torch"):
        load_protocol({"artifact": "zip"})


@pytest.mark.parametrize("artifact",
                         ["ctranslate2-int8", "onnx-int8", "onnx-none", "huggingface-bf16"])
def test_bytes_of_a_population_are_those_of_each_candidate(artifact) -> None:
    space = read_space(find_file("small/edgeformer", "spaces"))
    widths = np.array([16, 24, 64])
    protocol = load_protocol({"artifact": artifact, "vocab": 300})
    base = dict(space.single_architecture().config)
    found, built = evaluate_population_costs(base | {"width": widths}, 3, protocol, ["artifact.bytes"])
    alone = [evaluate_cost(assemble(base | {"width": int(width)}).block, protocol)["artifact.bytes"]
             for width in widths]
    assert built.all() and found["artifact.bytes"].tolist() == alone


def test_what_a_format_cannot_hold_cannot_be_built_under_it() -> None:
    block = read_space(find_file("small/anthe", "spaces")).single_architecture().block
    with refuses("unbuildable", "ctranslate2"):
        evaluate_cost(block, load_protocol({"artifact": "ctranslate2-int8", "vocab": 300}))
