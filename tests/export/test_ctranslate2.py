"""Models exported to CTranslate2: equal greedy tokens, and the stored variables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from scalesearch.blocks.core import EOS, UNK
from scalesearch.cost import load_protocol
from scalesearch.cost.artifact import (
    CONFIG_BYTES,
    artifact_bytes,
    json_piece_overhead_bytes,
    mean_piece_bytes,
)
from scalesearch.export.ctranslate2_ import CTranslate2Format
from scalesearch.export.export import export_training
from scalesearch.export.torch_ import TorchDecoder
from scalesearch.export.translator import Translator
from scalesearch.library import find_file
from scalesearch.lowering import MAX_SOURCE_TOKENS as LENGTH
from scalesearch.lowering.ctranslate2 import plan_variables
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.spaces import read_space
from scalesearch.training import train
from scalesearch.training.checkpoint import Checkpoint
from scalesearch.training.scoring.evaluate import DecodingOptions
from tests.docs.blocks import blocks
from tests.errors import refuses
from tests.export.models import LONGEST, VOCAB, architecture, most, sentences, untrained
from tests.processor import ONEDNN_WIDE_SUMS
from tests.training.conftest import recipe, tiny

pytest.importorskip("ctranslate2")
BOTH = ("encoder", "decoder")
CHAINS = {"tensor_chain.length": 2, "tensor_chain.apply": "auto", "tensor_chain.bond": "solved"}
LORA = {"adapt": "lora", "adapt.rank": 2, "adapt.on": ("query", "value", "out")}
CASES = {
    "plain": {}, "norms after": {"norm": "post"}, "rms norms": {"norm_kind": "rms"},
    "rms norms after": {"norm_kind": "rms", "norm": "post", "decoder.interleaved": True,
                        "encoder.ffn": "none"}, "no last norm": {"last_norm": False},
    "no biases of norms and outputs": {"norm_kind": "layer-no-bias", "encoder.out_bias": False,
                                       "decoder.projection_bias": False, "decoder.out_bias": True},
    "norms without weights": {"norm_kind": "layer-no-weights", "embedding.tied_bias": True},
    "norms of embeddings": {"embedding.norm": True, "embedding.scaled": False,
                            "embedding.tie": "inputs", "embedding.positions": "learned"},
    "rms norms of embeddings": {"embedding.norm": True, "norm_kind": "rms"},
    "norms without weights after": {"norm_kind": "layer-no-weights", "norm": "post",
                                    "encoder.ffn": "none"},
    "tables of their own": {"embedding.tie": "none"},
    "one table less": {"embedding.tie": "decoder"},
    "geglu and gelu": {"encoder.ffn": "geglu", "decoder.ffn": "gelu"},
    "swiglu and none": {"encoder.ffn": "swiglu", "decoder.ffn": "none"},
    "self-gated": {"encoder.ffn": "self_gated", "norm": "post"},
    "none, norms after": {"encoder.ffn": "none", "decoder.ffn": "none", "norm": "post"},
    "interleaved": {"decoder.interleaved": True, "decoder.depth": 3},
    "interleaved, norms after": {"decoder.interleaved": True, "norm": "post"},
    "interleaved without networks": {"decoder.interleaved": True, "decoder.ffn": "none"},
    "macaron": {"encoder.sublayers": ["ffn", "attention", "ffn"],
                "decoder.sublayers": ["ffn", "self", "cross", "ffn"]},
    "another order, norms after": {"norm": "post",
                                   "encoder.sublayers": ["attention", "attention", "ffn", "ffn"],
                                   "decoder.sublayers": ["self", "ffn", "ffn_again", "cross",
                                                         "self", "ffn"]},
    "no biases": {f"{stack}.{key}_bias": False for stack in BOTH for key in ("projection", "ffn")},
    "steps": {f"{stack}.step_embedding": True for stack in BOTH},
    "steps, norms after": {f"{stack}.step_embedding": True for stack in BOTH}
    | {"norm": "post", "decoder.interleaved": True, "encoder.ffn": "none"},
    "steps, norms of embeddings": {f"{stack}.step_embedding": True for stack in BOTH}
    | {"embedding.norm": True, "norm_kind": "layer-no-bias"},
    "learned positions": {"embedding.positions": "learned"},
    "relative positions": {f"{stack}.relative_{key}": value for stack in BOTH
                           for key, value in (("positions", True), ("clip", 3))},
    "rotary positions": {f"{stack}.{key}": size for stack in BOTH
                         for key, size in (("rotary", True), ("heads", 6), ("score_heads", 2),
                                           ("head_dim", 4))},
    "rotary positions of grouped keys": {f"{stack}.{key}": size for stack in BOTH
                                         for key, size in (("rotary", True), ("heads", 4),
                                                           ("score_heads", 4),
                                                           ("key_value_heads", 2),
                                                           ("head_dim", 6))},
    "fewer scores than heads": {f"{stack}.{key}": size for stack in BOTH
                                for key, size in (("heads", 6), ("score_heads", 2),
                                                  ("head_dim", 3))},
    "sizes by layer": {"encoder.ffn.hidden": [5, 9], "decoder.ffn.hidden": [9, 4],
                       "decoder.head_dim": [3, 2]},
    "sub-layers absent in some layers": {
        "encoder.heads": [2, 0], "encoder.score_heads": [2, 0], "encoder.ffn.hidden": [0, 9],
        "decoder.heads": [0, 2], "decoder.score_heads": [0, 2], "decoder.cross_heads": [2, 0],
        "decoder.ffn.hidden": [9, 0]},
    "no self-attention": {f"{stack}.{key}": 0 for stack in BOTH for key in ("heads", "score_heads")}
    | {"decoder.cross_heads": 2},
    "another width of the decoder": {"decoder.width": 12, "embedding.tie": "decoder",
                                     "decoder.cross_heads": [2, 0]},
    "grouped keys": {f"{stack}.{key}": size for stack in BOTH
                     for key, size in (("heads", 4), ("score_heads", 4), ("key_value_heads", 2))},
    "identity": {"encoder.projections": "identity", "encoder.head_dim": 2},
    "chains": {"tensor_chain.attention": 0.5, "tensor_chain.ffn": 0.5,
               "tensor_chain.embedding": 0.5, "tensor_chain.output": 0.5, "embedding.tie": "none",
               **CHAINS},
    "kronecker": {**{f"matrices.{place}": "kronecker" for place in ("attention", "out", "ffn")},
                  **{f"matrices.{place}.rank": 3 for place in ("attention", "out", "ffn")}},
    "a table of products": {"matrices.embedding": "kronecker", "matrices.embedding.rank": 2},
    "an output of products": {"matrices.output": "kronecker", "matrices.output.rank": 2,
                              "embedding.tie": "none", "matrices.embedding": "low_rank",
                              "matrices.embedding.rank": 3},
    "hypercomplex": {f"matrices.{place}{key}": value for place, n in (("attention", 2), ("ffn", 4))
                     for key, value in (("", "phm"), (".n", n), (".products", 3))},
    "groups": {f"matrices.{place}{key}": value for place in ("attention", "out", "ffn")
               for key, value in (("", "group"), (".groups", 2))},
    "low rank": {"low_rank.attention": 2, "low_rank.ffn": 3},
    "structures by layer": {"encoder.ffn_rank": [0, 3], "decoder.cross_rank": [2, 0],
                            "decoder.ffn_groups": [2, 0], "encoder.ffn_products": [1, 0]},
    "factorised": {"embedding": "factorised", "embedding.rank": 4},
    "factorized, untied": {"embedding": "factorised", "embedding.rank": 4, "embedding.tie": "none"},
    "adapters on shared layers": {**LORA, "share.encoder.attention": "one",
                                  "share.encoder.ffn": "one"},
    "biases on shared layers": {"adapt": "bias", "encoder.depth": 4,
                                "share.encoder.attention": "cycle(2)"},
    "a decoder with tied attention": {"share.decoder.cross": "encoder.attention[i]",
                            "share.decoder.ffn": "encoder.ffn[1 - i]", "share.norms": "follow",
                            "decoder.heads": 4, "decoder.score_heads": 4, "decoder.head_dim": 3,
                            "decoder.ffn.hidden": 16, "decoder.interleaved": True}}
ROWS = sentences(24)


def flat(changes: dict[str, object]) -> dict[str, object]:
    return {name.replace(".", "__"): value for name, value in changes.items()}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_greedy_tokens_equal_the_model(changes: dict[str, object], tmp_path: Path) -> None:
    expected = same_tokens(untrained(architecture(**flat(changes))), tmp_path)
    assert len(set(map(tuple, expected))) > 5 < len(
        set(map(len, expected))), "they say something, and end of themselves"


@pytest.mark.parametrize("name", ["plain", "edgeformer"])
def test_greedy_tokens_of_shipped_architectures_equal_the_model(name: str, tmp_path: Path) -> None:
    space = read_space(find_file(f"small/{name}", "spaces")).with_overrides({"width": "32"})
    assert len(set(map(tuple,
                       same_tokens(untrained(space.single_architecture(), ends=1), tmp_path)))) > 5


def same_tokens(trained: Checkpoint, tmp_path: Path) -> list[list[int]]:
    """Check that an artifact gives the tokens of its model; return these tokens."""
    format = CTranslate2Format()
    assert not format.unsupported_reasons(trained.architecture.block)
    format.write(trained, tmp_path, "none")
    limits = most(trained, ROWS)
    expected = TorchDecoder(trained.model).greedy(ROWS, limits)
    assert format.open_decoder(tmp_path, 1).greedy(ROWS, limits) == expected
    return expected


@pytest.fixture(scope="module")
def deep() -> object:
    """A checkpoint with interleaved shared layers."""
    return untrained(architecture(encoder__depth=4, share__encoder__attention="one",
                                  share__encoder__ffn="cycle(2)", decoder__interleaved=True,
                                  share__decoder__ffn="one"))


@pytest.mark.parametrize("quantize", CTranslate2Format.quantizations)
@pytest.mark.parametrize("longest", [LENGTH, 40, 1024])
def test_size_of_model_file_is_predicted(deep, quantize, longest, tmp_path):
    """Up to estimated bytes of the scalars next to the weights."""
    model = replace(deep, spec=deep.spec.replace(max_length=longest))
    CTranslate2Format().write(model, tmp_path, quantize)
    protocol = load_protocol({"vocab": VOCAB, "artifact": f"ctranslate2-{quantize}",
                              "longest": longest})
    assert load_protocol(protocol.facts) == protocol == protocol.with_lengths(30, 30, VOCAB)
    vocabulary = round(VOCAB * (mean_piece_bytes(VOCAB) + json_piece_overhead_bytes(VOCAB)))
    estimated = artifact_bytes(deep.architecture.block, protocol) - vocabulary - CONFIG_BYTES
    assert abs(estimated - (tmp_path / "model.bin").stat().st_size) < 300


@pytest.mark.parametrize("quantize", CTranslate2Format.quantizations)
def test_stored_variables_equal_the_plan(deep, quantize, tmp_path):
    """Equal variables are stored once, with the planned bytes; the model is unchanged."""
    before = [weight.clone() for weight in deep.model.parameters()]
    CTranslate2Format().write(deep, tmp_path, quantize)
    assert all(torch.equal(weight, other) for weight, other in zip(before, deep.model.parameters()))
    stored: dict[object, object] = {}
    plan = plan_variables(deep.architecture.block, VOCAB, LONGEST)
    variables = sorted(plan.variables, key=lambda variable: variable.name)
    head = 0
    for variable in variables:
        first = stored.setdefault((variable.sharing_key, variable.shape), variable)
        head += len(variable.name) + len(first.name) + 6 if first is not variable else 0
    scales = [
        ("float32", variable.shape[0]) if quantize == "int8" else ("float32", 1)
        for variable in stored.values()
        if variable.is_quantized and quantize in ("int8", "int16")
    ]
    size = {"int8": 1, "int16": 2, "bf16": 2, "none": 4}[quantize]
    expected = sum(torch.Size(variable.shape).numel()
                 * (size if variable.is_quantized else 2 if quantize == "bf16" else 4)
                 for variable in stored.values()) + sum(4 * count for _, count in scales)
    head += sum(len(variable.name) + 8 + 4 * len(variable.shape) for variable in stored.values())
    if quantize in ("int8", "int16"):
        head += sum(len(variable.name) + 14 + 4 * (quantize == "int8")
                    for variable in stored.values() if variable.is_quantized)
    whole = (tmp_path / "model.bin").stat().st_size
    assert 0 < whole - expected - head < 60 * (len(plan.scalars)
                                             + 3), "scalars, and the file's own head"
    names = {variable.name for variable in stored.values()}
    assert "encoder/layer_1/self_attention/linear_0/weight" not in names
    assert {f"encoder/layer_{layer}/ffn/linear_0/weight" for layer in (0, 1, 2, 3)} & names == {
        f"encoder/layer_{layer}/ffn/linear_0/weight" for layer in (0, 1)}


@pytest.mark.parametrize("quantize", ["int8", "int16", "bf16"])
def test_quantized_artifacts_give_similar_tokens(deep, quantize, tmp_path):
    CTranslate2Format().write(deep, tmp_path, quantize)
    limits = most(deep, ROWS)
    decoder = CTranslate2Format().open_decoder(tmp_path, 1)
    expected = TorchDecoder(deep.model).greedy(ROWS, limits)
    decoded = decoder.greedy(ROWS, limits)
    first = sum(expected_ids[:1] == other[:1] for expected_ids, other in zip(expected, decoded))
    # Processors without efficient int16 use int8. By chance, hardly any tokens agree.
    near = 0.7 if ONEDNN_WIDE_SUMS or not decoder.compute_type.startswith("int8") else 0.2
    assert first > len(ROWS) * near and all(
        len(ids) <= limit for ids, limit in zip(decoded, limits)
    )


def test_beam_search_returns_scores_within_limits(deep, tmp_path):
    CTranslate2Format().write(deep, tmp_path, "none")
    limits = most(deep, ROWS)
    decoded = CTranslate2Format().open_decoder(tmp_path, 1).beam_search(
        ROWS, limits, DecodingOptions(4, 1.0, n_best=2))
    expected_beams = TorchDecoder(deep.model).beam_search(
        ROWS, limits, DecodingOptions(4, 1.0, n_best=2)
    )
    for row, limit in zip(decoded, limits):
        (_, best), (_, second) = row
        assert best >= second and all(len(ids) <= limit and not {0, 2, 3} & set(ids)
                                      for ids, _ in row)
    assert (
        sum(hypotheses[0][0] == other[0][0] for hypotheses, other in zip(decoded, expected_beams))
        > len(ROWS) // 4
    )


def test_unknown_token_is_generated_only_if_allowed(tmp_path):
    trained = untrained(architecture(**{"embedding.tie": "none"}))
    with torch.no_grad():
        for weight in trained.model.parameters():
            if weight.shape[0] == VOCAB:
                weight[UNK] = 2 * weight[EOS]  # more probable than EOS where EOS is likely
    CTranslate2Format().write(trained, tmp_path, "none")
    limits = most(trained, ROWS)
    for decoder in (TorchDecoder(trained.model), CTranslate2Format().open_decoder(tmp_path, 1)):
        assert any(UNK in ids for ids in decoder.greedy(ROWS, limits, allow_unk=True))
        assert all(UNK not in ids for ids in decoder.greedy(ROWS, limits))
        for allow_unk in (False, True):
            hypotheses = decoder.beam_search(ROWS, limits,
                                             DecodingOptions(3, n_best=3, allow_unk=allow_unk))
            assert any(UNK in ids for row in hypotheses for ids, _ in row) == allow_unk


@pytest.mark.parametrize(("quantize", "flags", "noted"),
                         [("int8", "avx2", True), ("int8", "avx2 avx512_vnni", False),
                          ("int8", "avx_vnni", False), ("none", "avx2", False)])
def test_int8_without_vnni_has_accuracy_note(quantize, flags, noted, deep, tmp_path, monkeypatch):
    CTranslate2Format().write(deep, tmp_path, quantize)
    monkeypatch.setattr("scalesearch.export.ctranslate2_.read_cpuinfo", lambda: {"flags": flags})
    assert ("VNNI" in CTranslate2Format().open_decoder(tmp_path, 1).accuracy_note) == noted


def test_too_many_tokens_are_an_error(deep, tmp_path):
    CTranslate2Format().write(deep, tmp_path, "none")
    with refuses("too-long", "positions", "request fewer tokens"):
        CTranslate2Format().open_decoder(tmp_path, 1).decode_fixed_length(ROWS[:1], 2000, 1)


@pytest.mark.parametrize(
    ("changes", "where"),
    [({"encoder.gate": "QgV", "encoder.heads": 2, "encoder.score_heads": 2, "encoder.head_dim": 4},
      "encoder.attention"),
     ({"decoder.cross_gate": "KgV", "decoder.heads": 2, "decoder.head_dim": 4},
      "decoder.cross_attention"), ({"encoder.residual_scores": "global"}, "encoder.scores"),
     ({"encoder.solver": "rk2"}, "encoder: the solver rk2"),
     ({"encoder.residual_scores": "previous"}, "encoder.attention"),
     ({"encoder.head_scaling": "mlp"}, "head_scaling"),
     ({"decoder.heads": 4, "decoder.score_heads": 4, "decoder.cross_heads": 2},
      "decoder: its attention has several numbers of heads"),
     ({"encoder.heads": [2, 1], "encoder.score_heads": [2, 1]},
      "encoder: its attention has several numbers of heads"),
     ({"encoder.soft_cap": [0, 30]}, "encoder.attention: scores are limited"),
     ({"decoder.score_dim": [0, 2]}, "decoder.cross_attention: scores are not divided"),
     ({"decoder.pg": "relu", "decoder.pg.on": "cross", "decoder.pg.ratio": 2,
       "decoder.pg.per_head": False, "decoder.pg.gate": "relu", "decoder.pg.residual": True},
      "decoder.cross_attention.partial"),
     ({"adapt": "prompt", "adapt.length": 4}, "encoder.attention.prompt"),
     ({"decoder.step_embedding": True, "norm_kind": "rms", "embedding.norm": True},
      "decoder: step signals can be biases of norms"),
     ({"encoder.middle_width": 4, "encoder.depth": 3}, "encoder: its layers have two widths"),
     ({"encoder.relative_positions": True, "encoder.relative_clip": 2, "norm": "post"},
      "rotary positions in a post-norm model"),
     ({"embedding": "h-softpos", "embedding.levels": 2, "embedding.level_width": 2,
       "embedding.roles": 2, "embedding.tie": "none"}, "embedding.source: SoftPOS"),
     ({"embedding": "attentive", "embedding.rank": 4, "embedding.heads": 2},
      "embedding.target: AttentiveEmbedding"),
     ({"embedding": "adaptive", "embedding.cutoffs": (20,), "embedding.factor": 2,
       "embedding.tie": "none", "vocab": VOCAB}, "embedding.source.table: AdaptiveEmbedding"),
     ({"model": "decoder-only"}, "decoder: the runtime's translator needs an encoder")])
def test_unsupported_parts_are_refused(changes, where):
    decoded = find_unsupported_parts(architecture(**flat(changes)).block)
    assert any(where in reason for reason in decoded), decoded


@pytest.mark.full
def test_documented_call_translates_as_the_command(corpus, tmp_path, monkeypatch) -> None:
    """The call of the guide has the beam, penalty and limits of the recipe."""
    search = {"beam": 4, "length_penalty": 0.6, "max_length_a": 1.2, "max_length_b": 3}
    train(tiny(width=32), corpus, recipe(steps=40, max_tokens=400, **search), tmp_path / "run")
    export_training(tmp_path / "run", tmp_path / "model", "ctranslate2", "none", corpus.spec, 5)
    [code] = [block.text for block in blocks("docs/guides/export.md")
              if block.language == "python" and "ctranslate2.Translator" in block.text]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    lines = corpus.test.source_text
    assert list(map(names["translate"], lines)) == Translator("model").best_translations(lines)
