"""Several parallel paths: computation, published totals, sharing, counts, initialization."""

from typing import Any

import pytest
import torch

from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.nn import build_model
from scalesearch.spaces import Space
from scalesearch.spaces.assembly.architecture import ModelSpec, assemble
from scalesearch.testing.registered_blocks import check_count, tiny_space
from scalesearch.training import Recipe
from scalesearch.training.updates.parametrization import weight_scales
from tests.architectures import transformer_config


def architecture(of: str, merge: str = "mean", norm: bool = False, count: int = 2,
                 **more: Any) -> ModelSpec:
    """A small Transformer with paths in its encoder."""
    paths = {"of": of, "count": count, "merge": merge, "norm": norm}
    path_keys = {f"encoder__paths__{key}": value for key, value in paths.items()}
    return assemble(transformer_config(**path_keys, **more))


def layer_of(spec: ModelSpec) -> Any:
    return build_model(spec.block, vocab=40).encoder.layers[0].eval()


@pytest.mark.parametrize("merge", ["mean", "weighted"])
def test_equal_paths_equal_a_single_path(merge: str) -> None:
    layer = layer_of(architecture("sublayer", merge, count=3))
    plain = layer_of(assemble(transformer_config()))
    for name in ("attention", "ffn"):
        for path in ("path_1", "path_2", "path_3"):
            getattr(getattr(layer, name), path).load_state_dict(getattr(plain, name).state_dict())
    x = torch.randn(2, 5, 8)
    assert torch.allclose(layer(x, None, None), plain(x, None, None), atol=1e-6)


def test_gate_weights_paths_per_position() -> None:
    ffn = layer_of(architecture("ffn", "gated")).ffn
    x = torch.randn(2, 5, 8)
    share = ffn.merge.gate(x).softmax(-1)
    assert torch.allclose(ffn(x), share[..., :1] * ffn.path_1(x) + share[..., 1:] * ffn.path_2(x),
                          atol=1e-6)


def test_paths_end_with_their_norms() -> None:
    ffn = layer_of(architecture("ffn", "sum", norm=True)).ffn
    x = torch.randn(2, 5, 8)
    expected = ffn.merge.norm_1(ffn.path_1(x)) + ffn.merge.norm_2(ffn.path_2(x))
    assert torch.allclose(ffn(x), expected, atol=1e-6)


def test_layer_paths_share_the_first_norm() -> None:
    """Multi-unit layers (Yan et al. 2020), in which the residuals are weighted too."""
    layer = layer_of(architecture("layer", "weighted"))
    x = torch.randn(2, 5, 8)
    torch.nn.init.normal_(layer.merge.weight)
    normed = layer.attention_norm(x)
    total = 0
    for path, weight in zip(("path_1", "path_2"), layer.merge.weight + 0.5):
        y = x + getattr(layer.attention, path)(normed, None, None)
        total = total + weight * (y + getattr(layer.ffn, path)(getattr(layer.ffn_norm, path)(y)))
    assert torch.allclose(layer(x, None, None), total, atol=1e-6)


def test_ids_ignore_single_paths_and_missing_sublayers() -> None:
    assert architecture("layer", count=1).id == assemble(transformer_config()).id
    without = {"encoder__ffn": "none"}
    assert architecture("ffn", **without).id == assemble(transformer_config(**without)).id
    assert architecture("sublayer", **without).id == architecture("attention", **without).id


PLAIN: dict[str, Any] = {"heads": 8, "ffn": {"relu": {"hidden": 2048}}}
UNITS = {**PLAIN, "relative_positions": True, "relative_clip": 16}
# MAT (Fan et al. 2020), MUTE without tables, and a reading of Multi-Path (Lin et al. 2022)
MAT_STACK = {"heads": 16, "ffn": {"relu": {"hidden": 12288}},
             "paths": {"of": "attention", "count": 2}}
MULTI_PATH_STACK = {**PLAIN, "paths": {"count": 4, "merge": "weighted", "norm": True}}
PUBLISHED = {
    "MAT": ({"norm": "post"}, MAT_STACK, MAT_STACK, "params.total", 205_778_944),
    "MUTE": ({}, {**UNITS, "paths": {"of": "layer", "count": 4, "merge": "weighted"}}, UNITS,
             "params.non_embedding", 100_928_408),
    "Multi-Path": ({}, MULTI_PATH_STACK, MULTI_PATH_STACK, "params.total", 193_364_088),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_totals_are_reproduced(name: str) -> None:
    top, encoder, decoder, quantity, exact = PUBLISHED[name]
    spec = Space.from_python({"width": 512, **top, "encoder": encoder,
                              "decoder": decoder}).single_architecture()
    assert evaluate_cost(spec.block, find_protocol("forward", 30, 30, 32768))[quantity] == exact


def test_shared_paths_have_own_norms_unless_norms_follow() -> None:
    for norms, own in (("own", True), ("follow", False)):
        spec = architecture("ffn", "weighted", norm=True, share__encoder__ffn="one",
                            share__norms=norms)
        first, second = (layer.ffn for layer in build_model(spec.block, vocab=40).encoder.layers)
        assert first.path_2.up.weight is second.path_2.up.weight
        assert first.merge.weight is second.merge.weight
        assert (first.merge.norm_1.weight is not second.merge.norm_1.weight) == own


def test_tying_is_per_path() -> None:
    more = {f"decoder__paths__{key}": value for key, value in (
        ("of", "ffn"), ("count", 2), ("merge", "mean"), ("norm", False))}
    model = build_model(architecture("ffn", **more, share__decoder__ffn="encoder.ffn[i]").block,
                        vocab=40)
    assert model.decoder.layers[1].ffn.path_2.up.weight is model.encoder.layers[
        1].ffn.path_2.up.weight


def test_zero_init_applies_to_the_last_map_or_norm() -> None:
    """If a norm comes last, only its gain is zero; otherwise all gradients would stay zero."""
    recipe = Recipe(steps=1).replace(zero_init=True)
    inner = "encoder.layers.0.ffn.path_1.down.weight"
    gain = "encoder.layers.0.ffn.merge.norm_1.weight"
    assert weight_scales(build_model(architecture("ffn").block, vocab=40),
                         recipe)[inner].init_factor == 0
    scales = weight_scales(build_model(architecture("ffn", norm=True).block, vocab=40), recipe)
    assert (scales[inner].init_factor, scales[gain].init_factor) == (1, 0)


@pytest.mark.full
@pytest.mark.parametrize(
    ("encoder", "decoder", "more"),
    [({"heads": "2 | 4",
       "paths": {"of": "attention | ffn | sublayer | layer", "count": "1 | 2",
                 "norm": "yes | no"},
       "ffn": {"one of": {"relu": {"hidden": "8 | 16"}, "none": {}}}}, {"heads": 2}, {}),
     ({"heads": 2},
      {"heads": "2 | 4",
       "paths": {"of": "sublayer | layer", "count": "1..3", "merge": "weighted | gated"},
       "sublayers": "[self, cross, ffn] | [self, ffn, cross, ffn_again]"},
      {"model": "encoder-decoder | decoder-only", "norm": "pre | post"})])
def test_count_equals_enumeration(encoder: Any, decoder: Any, more: Any) -> None:
    check_count(tiny_space(encoder, decoder, **more))


def test_ctranslate2_reports_unsupported_paths() -> None:
    assert "encoder: 2 paths, and the runtime has one" in find_unsupported_parts(
        architecture("attention").block)
