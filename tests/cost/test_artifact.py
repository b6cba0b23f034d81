"""Predicted bytes of exported models."""

import numpy as np
import pytest

from scalesearch.cost import evaluate_cost, find_protocol, load_protocol
from scalesearch.cost.artifact import artifact_bytes
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.library import find_file
from scalesearch.nn import build_model
from scalesearch.spaces import read_space
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.training.updates.averaging import write_weights
from tests.errors import refuses

SMALL = ("small/plain", "small/partialformer", "small/anthe", "small/edgeformer")


@pytest.mark.parametrize("name", SMALL)
def test_size_of_the_weights_file_is_predicted(name, tmp_path) -> None:
    """Exact except for the header, up to 0.1 %."""
    block = read_space(find_file(name, "spaces")).single_architecture().block
    vocab = 500
    write_weights(tmp_path / "w", build_model(block, vocab=vocab).state_dict())
    whole = artifact_bytes(block, load_protocol({"vocab": vocab, "artifact": "torch"}))
    vocabulary = round(vocab * (4.74 - 0.83 + 9.05))
    assert whole - vocabulary == pytest.approx((tmp_path / "w").stat().st_size, rel=1e-3)


def test_artifact_bytes_require_a_format() -> None:
    block = read_space(find_file("small/plain", "spaces")).single_architecture().block
    breakdown = evaluate_cost(block, find_protocol("forward", 5, 5, 100))
    assert "artifact.bytes" not in breakdown.values
    with refuses("artifact-format-missing"):
        breakdown["artifact.bytes"]
    with refuses("unknown-artifact-format", "zip", "torch"):
        load_protocol({"artifact": "zip"})


@pytest.mark.parametrize("artifact",
                         ["ctranslate2-int8", "onnx-int8", "onnx-none", "huggingface-bf16"])
def test_artifact_bytes_of_a_population_equal_single_candidates(artifact) -> None:
    space = read_space(find_file("small/edgeformer", "spaces"))
    widths = np.array([16, 24, 64])
    protocol = load_protocol({"artifact": artifact, "vocab": 300})
    base = dict(space.single_architecture().config)
    costs, is_buildable = evaluate_population_costs(base | {"width": widths}, 3, protocol,
                                                    ["artifact.bytes"])
    blocks = [assemble(base | {"width": int(width)}).block for width in widths]
    expected = [evaluate_cost(block, protocol)["artifact.bytes"] for block in blocks]
    assert is_buildable.all() and costs["artifact.bytes"].tolist() == expected


def test_architectures_unsupported_by_the_format_are_unbuildable() -> None:
    block = read_space(find_file("small/anthe", "spaces")).single_architecture().block
    with refuses("unbuildable", "ctranslate2"):
        evaluate_cost(block, load_protocol({"artifact": "ctranslate2-int8", "vocab": 300}))
