"""Predicted bytes of exported models."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

import scalesearch as ss
from scalesearch.cost import evaluate_cost, find_protocol, load_protocol
from scalesearch.cost.artifact import (
    artifact_bytes,
    tokenizer_bytes,
    tokenizer_json_entry_bytes,
)
from scalesearch.cost.population import evaluate_population_costs
from scalesearch.cost.tables import artifact_lines
from scalesearch.data import Tokenizer
from scalesearch.export.base import FORMAT_CLASSES, get_format
from scalesearch.export.huggingface.bundle import bundle_source
from scalesearch.export.huggingface.tokenizer import tokenizer_json
from scalesearch.library import find_file
from scalesearch.nn import build_model
from scalesearch.spaces import read_space
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.spaces.schema.cost_names import ARTIFACT_FORMATS
from scalesearch.training.updates.averaging import write_weights
from tests.architectures import transformer_config
from tests.errors import refuses

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("name", SMALL)
def test_size_of_a_huggingface_export_is_predicted(name, tmp_path) -> None:
    """Up to 12 kB, which is 1 % of 300,000 weights in float32."""
    block = read_space(find_file(name, "spaces")).single_architecture().block
    vocab = 500
    state = build_model(block, vocab=vocab).state_dict()
    write_weights(tmp_path / "w", {f"model.{name}": weight for name, weight in state.items()})
    size = (tmp_path / "w").stat().st_size + len(bundle_source(block, "A model."))
    whole = artifact_bytes(block, load_protocol({"vocab": vocab, "artifact": "huggingface-none"}))
    estimated = whole - round(vocab * tokenizer_json_entry_bytes(vocab))
    assert estimated == pytest.approx(size, abs=12_000)


def test_size_of_tokenizer_json_is_predicted() -> None:
    tokenizer = Tokenizer.from_file(ROOT / "docs/flagship-int8/tokenizer.model")
    text = json.dumps(tokenizer_json(tokenizer, False), ensure_ascii=False, separators=(",", ":"))
    vocab = tokenizer.vocab_size
    assert vocab * tokenizer_json_entry_bytes(vocab) == pytest.approx(len(text.encode()), rel=0.02)


def test_artifact_bytes_require_a_format() -> None:
    block = read_space(find_file("small/plain", "spaces")).single_architecture().block
    breakdown = evaluate_cost(block, find_protocol("forward", 5, 5, 100))
    assert "artifact.bytes" not in breakdown.values
    with refuses("artifact-format-missing"):
        breakdown["artifact.bytes"]
    with refuses("unknown-artifact-format", "zip", "torch"):
        load_protocol({"artifact": "zip"})


def test_formats_have_the_default_quantization_of_the_export() -> None:
    for name in FORMAT_CLASSES.keys() - {"torch"}:
        artifact = load_protocol({"artifact": name}).artifact
        assert artifact == f"{name}-{get_format(name).quantizations[0]}"


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
    encoder = assemble(transformer_config(model="encoder-only", classes=3)).block
    for name in ARTIFACT_FORMATS:
        protocol = load_protocol({"artifact": name, "vocab": 300})
        if name == "torch":
            assert evaluate_cost(encoder, protocol)["artifact.bytes"]
        else:
            with refuses("unbuildable", "encoder-only"):
                evaluate_cost(encoder, protocol)


OWN_VOCABULARY = """
width: 16 | 24
vocab: 120 | 300 | 1000
encoder: {depth: 1, heads: 2, ffn: {relu: {hidden: 16 | 32}}}
decoder: {depth: 1, heads: 2, ffn: {relu: {hidden: 16}}}
where: [artifact.bytes <= 100k]
cost: {protocol: {source: 8, target: 8, artifact: FORMAT}}
"""


@pytest.mark.parametrize("artifact", ARTIFACT_FORMATS)
def test_bytes_of_candidates_with_their_own_vocabularies(artifact, tmp_path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(OWN_VOCABULARY.replace("FORMAT", artifact))
    space = read_space(file)
    protocol = load_protocol(space.protocol)
    architectures = [space.with_overrides({"width": str(width), "vocab": str(vocab),
                                           "encoder.ffn.relu.hidden": str(hidden)}
                                          ).single_architecture()
                     for width in (16, 24) for vocab in (120, 300, 1000) for hidden in (16, 32)]
    expected = [artifact_bytes(architecture.block, protocol.with_vocab(architecture.vocab))
                for architecture in architectures]
    columns = {key: [architecture.config[key] for architecture in architectures]
               for key in architectures[0].config}
    values = {key: column[0] if column.count(column[0]) == len(column) else np.array(column)
              for key, column in columns.items()}
    costs, is_buildable = evaluate_population_costs(values, len(expected), protocol,
                                                    ["artifact.bytes"])
    assert is_buildable.all() and costs["artifact.bytes"].tolist() == expected
    for limit in sorted(expected)[::4]:
        count = sum(size <= min(limit, 100_000) for size in expected)
        assert ss.space(file).feasible(f"artifact.bytes <= {limit}", samples=50).count == count


def test_size_of_the_tokenizer_is_named_next_to_the_bytes_of_the_runtime(tmp_path) -> None:
    block = read_space(find_file("small/plain", "spaces")).single_architecture().block
    rng = Random(1)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 9))) for _ in range(400)]
    text = [" ".join(rng.choices(words, k=8)) for _ in range(300)]
    tokenizer = Tokenizer.fit(text, 500, "bpe")
    protocol = load_protocol({"artifact": "ctranslate2-int8", "vocab": tokenizer.vocab_size})
    estimate = tokenizer_bytes(block, protocol)
    assert estimate == pytest.approx(len(tokenizer.model_bytes), rel=0.3)
    pair = Tokenizer.pair(tokenizer, Tokenizer.fit(text, 400, "bpe"))
    two = assemble(transformer_config(target_vocab=400, embedding__tie="none")).block
    assert tokenizer_bytes(two, protocol) == pytest.approx(len(pair.model_bytes), rel=0.3)
    line, = artifact_lines(evaluate_cost(block, protocol))
    assert f"{estimate:,} bytes" in line and "tokenizer.model" in line
    torch_line, = artifact_lines(evaluate_cost(block, replace(protocol, artifact="torch")))
    assert "tokenizer" not in torch_line
