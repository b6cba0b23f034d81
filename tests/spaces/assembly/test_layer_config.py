"""Sizes per layer: meaning, ids and invalid values."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scalesearch.cost import CostBreakdown, evaluate_cost, find_protocol
from scalesearch.library import find_file
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.nn import build_model
from scalesearch.spaces import Space, UnbuildableError, read_space
from scalesearch.spaces.syntax.diagnostics import ConfigError
from tests.errors import refuses

HIDDEN = "encoder__ffn__relu__hidden"
PROTOCOL = find_protocol("forward", 7, 7, 100)
PLAIN = """
width: 32
encoder: { depth: 3, heads: 4, ffn: { relu: { hidden: 24 } } }
decoder: { depth: 2, heads: 4, ffn: { relu: { hidden: 24 } } }
"""


def space(**changes: str) -> Space:
    return Space.parse(PLAIN).with_overrides(
        {path.replace("__", "."): value for path, value in changes.items()})


def config_value(key: str, **changes: str) -> object:
    return space(**changes).single_architecture().config[key]


def breakdown(**changes: str) -> CostBreakdown:
    return evaluate_cost(space(**changes).single_architecture().block, PROTOCOL)


@pytest.mark.parametrize(("text", "sizes"),
                         [("[8, 16, 64]", [8, 16, 64]), ("ramp(8, 64)", [8, 36, 64]),
                          ("ramp(64, 9)", [64, 36, 9]), ("ramp(1, 2)", [1, 1, 2]),
                          ("[24, 24, 24]", 24), ("ramp(24, 24)", 24),
                          ("[8, 16, 64, 128]", [8, 16, 64])])
def test_lists_and_ramps_set_the_size_per_layer(text: str, sizes: object) -> None:
    assert config_value("encoder.ffn.hidden", **{HIDDEN: text}) == sizes


def test_sizes_are_computed_per_layer() -> None:
    by_layer = {"encoder__heads": "[2, 4, 8]", "encoder__head_dim": "= width // encoder.heads"}
    assert config_value("encoder.head_dim", **by_layer) == [16, 8, 4]
    assert config_value("encoder.score_heads", **by_layer) == [2, 4, 8]
    wide = {HIDDEN: "= 4 * encoder.heads + width", **by_layer}
    assert config_value("encoder.ffn.hidden", **wide) == [40, 48, 64]


def test_costs_of_layers_add_up() -> None:
    sizes = [8, 16, 64]
    mixed = breakdown(**{HIDDEN: str(sizes)})
    single_layers = [breakdown(**{HIDDEN: str(size)}, encoder__depth="1") for size in sizes]
    one_layer = breakdown(encoder__depth="1")
    three_layers = breakdown()
    for name in ("params.total", "macs.total", "memory.activations"):
        without_layers = one_layer[name] - (three_layers[name] - one_layer[name]) // 2
        total = sum(single_layer[name] for single_layer in single_layers)
        assert mixed[name] == total - 2 * without_layers, name


def test_equal_layers_have_the_id_of_a_constant() -> None:
    plain = space().single_architecture().id
    assert {space(**{HIDDEN: text}).single_architecture().id
            for text in ("[24, 24, 24]", "ramp(24, 24)")} == {plain}
    assert space(**{HIDDEN: "[24, 24, 25]"}).single_architecture().id != plain
    assert space(**{HIDDEN: "[24, 25, 24]"}).single_architecture().id != space(
        **{HIDDEN: "[24, 24, 25]"}).single_architecture().id


def test_only_equally_sized_layers_can_be_tied() -> None:
    mixed = {HIDDEN: "[8, 8, 16]"}
    shared = breakdown(share__encoder__ffn="runs(2, 1)", **mixed)["params.total"]
    assert breakdown(**mixed)["params.total"] - shared == 2 * 32 * 8 + 8 + 32
    with pytest.raises(UnbuildableError) as caught:
        space(share__encoder__ffn="one", **mixed).single_architecture()
    assert caught.value.key == "share.encoder.ffn" and "0 and 2" in str(caught.value)


@pytest.mark.parametrize(("key", "changes"), [
    ("encoder.residual_scores", {"encoder__residual_scores": "previous"}),
    ("encoder.residual_scores", {"encoder__residual_scores": "global"}),
])
def test_residual_scores_require_equal_heads(key: str, changes: dict[str, str]) -> None:
    with pytest.raises(UnbuildableError) as caught:
        space(encoder__heads="[2, 4, 4]", encoder__head_dim="8", **changes).single_architecture()
    assert caught.value.key == key


def test_ctranslate2_requires_equal_heads() -> None:
    assert not find_unsupported_parts(space(**{HIDDEN: "[8, 16, 8]"},
                                            decoder__head_dim="[4, 8]").single_architecture().block)
    parts = find_unsupported_parts(space(encoder__heads="[2, 4, 4]",
                                         encoder__head_dim="8").single_architecture().block)
    assert len(parts) == 1 and parts[0].startswith("encoder: ")


ABSENT = {"encoder__heads": "[4, 0, 2]", "encoder__head_dim": "8", HIDDEN: "[16, 24, 0]",
          "decoder__heads": "[0, 4]", "decoder__cross_heads": "[4, 0]", "decoder__head_dim": "8"}


def test_sublayers_of_size_zero_are_absent() -> None:
    assert space(**{HIDDEN: "0"}).single_architecture().id == space(
        encoder__ffn="none").single_architecture().id
    architecture = space(**ABSENT).single_architecture()
    layers = architecture.block.encoder.layers  # type: ignore[attr-defined]
    assert [set(layers.layer_at(index).parts()) for index in range(3)] == [
        {"attention", "attention_norm", "ffn", "ffn_norm"}, {"ffn", "ffn_norm"},
        {"attention", "attention_norm"}]


def test_costs_of_absent_sublayers_are_those_of_the_module() -> None:
    architecture = space(**ABSENT).single_architecture()
    model = build_model(architecture.block, vocab=100)
    costs = evaluate_cost(architecture.block, PROTOCOL)
    assert costs["params.total"] == sum(weight.numel() for weight in model.parameters())
    source = torch.randint(4, 100, (2, 7))
    with FlopCounterMode(display=False) as counter:
        model(source[:1], source[:1])
    assert 2 * costs["macs.total"] == counter.get_total_flops()
    memory = model.encode(source)
    cache = model.new_cache()
    steps = [model.decode(source[:, step : step + 1], memory, cache) for step in range(7)]
    torch.testing.assert_close(torch.cat(steps, 1), model.decode(source, memory))


def test_a_layer_needs_a_sublayer() -> None:
    with refuses("unbuildable"):
        space(encoder__heads="[4, 0, 4]", encoder__head_dim="8",
              **{HIDDEN: "[24, 0, 24]"}).single_architecture()


@pytest.mark.parametrize(("text", "place"),
                         [("[8, abc, 8]", "abc"), ("[8, = width, 8]", "= width"),
                          ("ramp(8)", "ramp"), ("[8, -1..3, 8]", "-1")])
def test_invalid_sizes_are_shown(text: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        space(**{HIDDEN: text})
    assert place in str(caught.value)


def test_too_short_list_is_unbuildable() -> None:
    with pytest.raises(UnbuildableError) as caught:
        space(**{HIDDEN: "[8, 16]"}).single_architecture()
    assert caught.value.key == "encoder.ffn.hidden"


def test_width_rejects_lists() -> None:
    with refuses("bad-value", "[32, 64]", place="--set"):
        space(width="[32, 64]")


def test_list_items_can_be_parameters() -> None:
    layered = Space.parse(PLAIN.replace("hidden: 24", "hidden: [8 | 16, 8, 24..32 step 8]", 1))
    names = ["encoder.ffn.relu.hidden[1]", "encoder.ffn.relu.hidden[3]"]
    assert [name for name, _ in layered.parameters()] == names and layered.n_configurations() == 4
    assert {tuple(config["encoder.ffn.hidden"]) for config in layered.enumerate()} == {
        (8, 8, 24), (8, 8, 32), (16, 8, 24), (16, 8, 32)}
    assert Space.parse(layered.to_yaml()) == layered
    for config in layered.enumerate():
        assert layered.contains(config)
        architecture = layered.architecture(config)
        copy = Space.parse(architecture.to_yaml()).single_architecture()
        assert copy.id == architecture.id


def test_hat_space_has_its_published_size() -> None:
    """Width, then heads and hidden units of six encoder layers and of one to six decoder layers."""
    assert read_space(find_file("hat", "spaces")).n_configurations() == 2 * 6**6 * sum(
        6**depth for depth in range(1, 7))
