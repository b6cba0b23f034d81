"""ONNX: onnxruntime gives the tokens and scores of the model."""

from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest
import torch
from torch.nn.functional import logsigmoid

from scalesearch.blocks.core import EOS
from scalesearch.cost import artifact, load_protocol
from scalesearch.export.base import get_format
from scalesearch.export.onnx_ import MAX_INLINE_BYTES, WEIGHTS_FILE, OnnxFormat, save_graphs
from scalesearch.export.onnx_.graphs import OnnxGraph, build_graphs, trace_graph
from scalesearch.export.onnx_.quantize import quantize_model
from scalesearch.export.torch_ import TorchDecoder
from scalesearch.library import find_file, library_folder
from scalesearch.nn import build_model
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.spaces import UnbuildableError, read_space
from scalesearch.spaces.assembly.architecture import ModelSpec, assemble
from scalesearch.testing import random_architecture
from scalesearch.training.scoring.evaluate import DecodingOptions
from tests.architectures import transformer_config
from tests.docs.blocks import ROOT
from tests.errors import refuses
from tests.processor import WIDE_SUMS

V = 40


def both(**changes: object) -> dict[str, object]:
    return {f"{stack}__{key}": value for stack in ("encoder", "decoder")
            for key, value in changes.items()}


BRANCHES = {"left": "dense", "left_kernel": 1, "left_multiple": 2, "left_activation": "relu",
            "right": "convolution", "right_kernel": 3, "right_multiple": 0.5,
            "right_activation": "swish", "kernel": 4, "multiple": 0.75}
FAMILIES = {  # each trace takes seconds: two networks of what is unlike a plain Transformer
    "papers": both(depth=1) | {
        "encoder__gate": "QgV", "encoder__ffn": "geglu", "encoder__ffn__hidden": 12,
        "decoder__cross_gate": "QgK",
        "tensor_chain__ffn": 0.6, "tensor_chain__output": 0.4, "tensor_chain__length": 3,
        "tensor_chain__apply": "auto",
        "tensor_chain__bond": "solved", "embedding": "h-softpos", "embedding__levels": 2,
        "embedding__level_width": 2,
        "embedding__roles": 2, "embedding__tie": "none", "decoder__pg": "relu",
        "decoder__pg__ratio": 2,
        "decoder__pg__gate": "relu", "decoder__pg__residual": True, "decoder__pg__per_head": True,
        "decoder__pg__on": "self", "decoder__heads": 4, "decoder__head_scaling": "mlp",
        "encoder__sublayers": [["attention", "ffn"], "ffn"],
        "decoder__sublayers": [["self", "cross"], "self", "ffn", "ffn_again"],
        "encoder__mask": "dynamic", "encoder__mask__clip": 2,
        "encoder__local": "dynamic", "encoder__local__join": "sum", "encoder__local__kernel": 4,
        "encoder__local__heads": 2, "encoder__local__glu": True, "decoder__local": "lightweight",
        "decoder__local__join": "before", "decoder__local__kernel": 3, "decoder__local__heads": 4,
        "decoder__local__glu": False, "decoder__residual_scores": "relative",
        "decoder__relative_clip": 2, "adapt": "prompt", "adapt__length": 2},
    "Evolved": both(depth=1, projection_bias=False, ffn_norm=True, ffn_bias=False, ffn="swish",
                    ffn__hidden=12, parallel_heads=4) | {
        "embedding": "attentive", "embedding__rank": 4, "embedding__heads": 2,
        "norm_kind": "layer-no-weights",
        "encoder__sublayers": ["glu", "branches", "attention", "ffn"],
        "decoder__sublayers": [["self", "cross"], "branches", "self", "cross", "ffn"],
        **{f"encoder__branches__{key}": value for key, value in BRANCHES.items()},
        **{f"decoder__branches__{key}": value for key, value in (BRANCHES | {
            "left": "separable", "left_kernel": 5, "right_activation": "none",
            "multiple": 1}).items()}},
    "windows": both(window=3, global_every=2, rotary=True, qk_norm="head", soft_cap=2,
                    alibi=True) | {
        "embedding__positions": "none", "decoder__position_buckets": 4,
        "decoder__bucket_distance": 9, "embedding__output_soft_cap": 3},
    "windows, decoder-only": {
        "model": "decoder-only", "decoder__window": [2, 5], "decoder__local": "ssru",
        "decoder__local__join": "sum"},
    "SSRU": both(depth=1, mixer="ssru") | {"decoder__width": 12, "embedding__tie": "decoder"},
    "linear attention": {
        "encoder__local": "linear_attention", "encoder__local__join": "before",
        "encoder__local__heads": 2, "encoder__local__key_dim": 2,
        "decoder__mixer": "linear_attention", "decoder__mixer__heads": 4,
        "decoder__mixer__key_dim": 3},
    "latent attention": {
        "model": "decoder-only", "embedding__positions": "none", "decoder__mixer": "latent",
        "decoder__mixer__heads": 2, "decoder__mixer__rank": 5, "decoder__mixer__head_dim": 3,
        "decoder__mixer__rotary_dim": 4, "decoder__mixer__value_dim": 4,
        "decoder__mixer__query_rank": 6},
    "mixture": both(depth=1, ffn="mixture", ffn__experts=3, ffn__active=2, ffn__expert_hidden=5) | {
        "encoder__ffn__expert": "swiglu", "encoder__ffn__shared": 0,
        "decoder__ffn__expert": "relu", "decoder__ffn__shared": 1},
    "decoder-only": both(depth=1, residual_scores="global", key_value_heads=1) | {
        "model": "decoder-only", "decoder__local": "average", "decoder__local__join": "sum",
        "decoder__local__dims": 3,
        "norm": "post", "embedding__tie": "decoder", "embedding__positions": "learned",
        "norm_kind": "layer-no-bias", "embedding__tied_bias": True, "embedding__norm": True,
        "embedding__scaled": False},
}  # fmt: skip


def lively(architecture: ModelSpec, seed: int = 1, vocab: int = V) -> Seq2SeqModel:
    """A random model whose next token depends clearly on source and prefix; no weight is zero."""
    model = build_model(architecture.block, vocab=vocab, seed=seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            scale = 0.3 * weight.std(correction=0) + 0.05
            weight += scale * torch.randn(weight.shape, generator=generator)
    return model


def exported(model: Seq2SeqModel, folder: Path, to: str = "none",
             opset: int | None = None) -> TorchDecoder:
    folder.mkdir()
    format = get_format("onnx", opset)
    format.write(SimpleNamespace(model=model), folder, to)
    return format.open_decoder(folder, 1)


def sources(seed: int, count: int, longest: int, vocab: int = V) -> list[list[int]]:
    """Random sentences of all lengths in random order; the shortest is only EOS."""
    rng = Random(seed)
    lengths = [0, longest - 1, *(rng.randrange(longest) for _ in range(count - 2))]
    return [[*(rng.randrange(4, vocab) for _ in range(length)), EOS] for length in lengths]


def check_decoder(decoder: TorchDecoder, model: Seq2SeqModel) -> None:
    """Check that greedy and beam search of a decoder equal the model."""
    expected = TorchDecoder(model)
    rows = sources(3, 8, 12)
    limits = [3 + 2 * len(row) % 7 for row in rows]
    assert decoder.greedy(rows, limits) == expected.greedy(rows, limits)
    assert decoder.greedy(rows[:1], [5]) == expected.greedy(rows[:1], [5])
    search = DecodingOptions(3, 0.6, n_best=2)
    for hypotheses, expected_hypotheses in zip(decoder.beam_search(rows, limits, search),
                          expected.beam_search(rows, limits, search)):
        assert [ids for ids, _ in hypotheses] == [ids for ids, _ in expected_hypotheses]
        assert [score for _, score in hypotheses] == pytest.approx(
            [score for _, score in expected_hypotheses], abs=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_all_families_decode_like_the_model(family: str, tmp_path: Path) -> None:
    model = lively(assemble(transformer_config(**{"width": 8, **FAMILIES[family]})))
    check_decoder(exported(model, tmp_path / "out"), model)


@pytest.mark.full
def test_weights_are_stored_once_and_quantized(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared embedding is stored once and quantized completely; sizes are predicted."""
    size = {"width": 32, **both(depth=1, ffn__hidden=64, head_dim=16)}
    model = lively(assemble(transformer_config(**size)), vocab=300)
    graphs = build_graphs(model, 20)
    folders = [tmp_path / "none", tmp_path / "int8"]
    sizes = []
    for name in ("ONNX_GRAPH_BYTES", "ONNX_WEIGHT_ENTRY_BYTES", "ONNX_INTEGER_MATMUL_BYTES",
                 "ONNX_LEAF_BYTES"):
        monkeypatch.setattr(artifact, name, 0)
    monkeypatch.setattr(artifact, "ONNX_LEAF_BYTES_BY_CLASS", {})
    for folder in folders:
        folder.mkdir()
        save_graphs(graphs, folder)
        sizes.append((folder / WEIGHTS_FILE).stat().st_size)
        inside = {name: value.const_value.nbytes for graph in graphs.values()
                  for name, value in graph.graph.initializers.items()
                  if name.startswith("model.") and value.const_value.nbytes <= MAX_INLINE_BYTES}
        protocol = load_protocol({"vocab": 300, "artifact": f"onnx-{folder.name}"})
        assert artifact.artifact_bytes(model.block, protocol) == sizes[-1] + sum(inside.values())
        for graph in graphs.values():
            quantize_model(graph)
    numbers = sum(weight.numel() for weight in model.parameters())
    vectors = sum(weight.numel() + weight.shape[0]
                  for weight in model.parameters() if weight.dim() == 2)
    small = sum(weight.numel() for weight in model.parameters() if weight.numel() * 4 <= 256)
    assert 4 * (numbers - small) <= sizes[0] <= 4 * numbers + 8192
    assert sizes[1] < numbers + 4 * vectors and sizes[1] < 0.4 * sizes[0]
    floats, integers = (OnnxFormat().open_decoder(folder, 1) for folder in folders)
    check_decoder(floats, model)
    rows = sources(5, 32, 9, 300)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    logits = [decoder.model.decode(ids[:, :1], decoder.model.encode(ids), decoder.model.new_cache())
              for decoder in (floats, integers)]
    assert 0 < float((logits[0] - logits[1]).std() / logits[0].std()) < (0.05 if WIDE_SUMS else 0.2)
    (folders[1] / WEIGHTS_FILE).write_bytes(b"cut")
    with refuses("file-damaged", "encoder.onnx"):
        OnnxFormat().open_decoder(folders[1], 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small/plain", "small/edgeformer"])
def test_size_of_folder_is_predicted(name: str, tmp_path: Path) -> None:
    """The error is less than 1 % for models of a million weights."""
    block = read_space(find_file(name, "spaces")).single_architecture().block
    words = 2000
    model = lively(SimpleNamespace(block=block), vocab=words)  # type: ignore[arg-type]
    for to in ("none", "int8"):
        exported(model, tmp_path / to, to)
        estimated = artifact.artifact_bytes(block,
                                       load_protocol({"vocab": words, "artifact": f"onnx-{to}"}))
        assert estimated == pytest.approx(
            sum(file.stat().st_size for file in (tmp_path / to).iterdir()), rel=0.01
        )


@pytest.mark.full
def test_constant_from_a_size_is_an_error() -> None:
    graph = OnnxGraph(lambda source: (source + len(source),),
                      {"source": (("batch", "source"), torch.long)}, ["sum"])
    with refuses("not-traceable"):
        trace_graph(torch.nn.Identity(), graph, 20)


@pytest.mark.full
def test_parts_of_small_weights_are_traced_without_warnings(
        caplog: pytest.LogCaptureFixture) -> None:
    """Warnings about nodes with several outputs were printed."""
    module = torch.nn.ParameterList([torch.arange(6.0)]).requires_grad_(False)
    graph = OnnxGraph(lambda x: (x * module[0].chunk(2)[0],), {"x": (("batch", 3), torch.float32)},
                      ["y"])
    trace_graph(module, graph, 20)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.full
@pytest.mark.parametrize("opset", [18, 22])
def test_log_sigmoid_is_exact_for_large_inputs(opset: int, tmp_path: Path) -> None:
    """Linear attention and the learned mask use it; the default translation gives -inf."""
    graph = OnnxGraph(lambda x: (logsigmoid(x),), {"x": (("batch",), torch.float32)}, ["y"])
    save_graphs({"graph": trace_graph(torch.nn.Identity(), graph, opset)}, tmp_path)
    x = torch.tensor([-200, -50, -17, -8, -0.5, 0, 3, 20, 200])
    [y] = onnxruntime.InferenceSession(tmp_path / "graph.onnx").run(None, {"x": x.numpy()})
    assert torch.allclose(torch.from_numpy(y), logsigmoid(x), rtol=1e-6, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("function", [lambda x, weight: torch.addmm(x[0], x, weight),
                                      lambda x, weight: weight.index_select(1, x[:, 0].long())])
def test_matrices_that_are_read_by_column_stay_in_float(function: Any, tmp_path: Path) -> None:
    """Such as those of other blocks; scales are per row, so that int8 would be wrong."""
    weight = torch.randn(40, 40, generator=torch.Generator().manual_seed(1))
    module = torch.nn.ParameterList([weight]).requires_grad_(False)
    graph = OnnxGraph(lambda x: (function(x, module[0]),), {"x": (("batch", 40), torch.float32)},
                      ["y"])
    traced = trace_graph(module, graph, 20)
    quantize_model(traced)
    save_graphs({"graph": traced}, tmp_path)
    x = torch.arange(120.0).view(3, 40) / 10
    [y] = onnxruntime.InferenceSession(tmp_path / "graph.onnx").run(None, {"x": x.numpy()})
    assert torch.allclose(torch.from_numpy(y), function(x, weight), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_networks_decode_like_the_model(seed: int, tmp_path: Path) -> None:
    model = lively(random_architecture(Random(seed)), seed)
    check_decoder(exported(model, tmp_path / "out"), model)


@pytest.mark.slow
@pytest.mark.parametrize("name",
                         sorted(path.stem for path in library_folder("spaces").glob("*.yaml")))
def test_networks_of_all_spaces_decode_like_the_model(name: str, tmp_path: Path) -> None:
    """Networks have their own size, except for the vocabulary."""
    space = read_space(find_file(name, "spaces"))
    rng = Random(1)
    while True:
        with suppress(UnbuildableError):
            architecture = assemble(space.sample(rng))
            break
    # at these widths noise on weights makes logits of hundreds
    model = build_model(architecture.block, vocab=V).eval()
    check_decoder(exported(model, tmp_path / "out"), model)


@pytest.mark.full
@pytest.mark.parametrize(("opset", "ir_version"), [(18, 8), (22, 10)])
def test_opset_can_be_chosen(opset: int, ir_version: int, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = lively(assemble(transformer_config(**{"width": 8, **both(depth=1)})))
    check_decoder(exported(model, tmp_path / "out", opset=opset), model)
    for file in tmp_path.glob("out/*.onnx"):
        graph = onnx.load(file, load_external_data=False)
        assert ([item.version for item in graph.opset_import], graph.ir_version) == (
            [opset], ir_version)


@pytest.mark.parametrize(("name", "opset"), [("onnx", 17), ("torch", 20)])
def test_unsupported_opset_is_refused(name: str, opset: int) -> None:
    with refuses("unknown-opset", opset, place="--opset"):
        get_format(name, opset)


@pytest.mark.full
@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_graphs_decode_and_have_the_documented_versions(quantization: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = lively(assemble(transformer_config(**{"width": 8, **both(depth=1)})))
    decoder = exported(model, tmp_path / "out", quantization)
    if quantization == "none":
        check_decoder(decoder, model)
    page = (ROOT / "docs/guides/export.md").read_text()
    for file in tmp_path.glob("out/*.onnx"):
        graph = onnx.load(file, load_external_data=False)
        [opset] = graph.opset_import
        assert opset.domain == "" and f"opset {opset.version} of the default domain" in page
        assert f"ONNX IR version {graph.ir_version};" in page
