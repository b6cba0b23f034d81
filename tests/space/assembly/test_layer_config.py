"""Sizes by layer: what they mean, when they are one network, and what cannot be."""

import pytest

from scalesearch.cost import CostBreakdown, evaluate_cost, find_protocol
from scalesearch.library import find_file
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.space import Space, UnbuildableError, read_space
from scalesearch.space.syntax.diagnostics import ConfigError
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


def answer(key: str, **changes: str) -> object:
    return space(**changes).single_architecture().config[key]


def bill(**changes: str) -> CostBreakdown:
    return evaluate_cost(space(**changes).single_architecture().block, PROTOCOL)


@pytest.mark.parametrize(("text", "sizes"),
                         [("[8, 16, 64]", [8, 16, 64]), ("ramp(8, 64)", [8, 36, 64]),
                          ("ramp(64, 9)", [64, 36, 9]), ("ramp(1, 2)", [1, 1, 2]),
                          ("[24, 24, 24]", 24), ("ramp(24, 24)", 24),
                          ("[8, 16, 64, 128]", [8, 16, 64])])
def test_a_list_and_a_ramp_say_the_size_of_each_layer(text: str, sizes: object) -> None:
    assert answer("encoder.ffn.hidden", **{HIDDEN: text}) == sizes


def test_computed_sizes_go_layer_by_layer() -> None:
    by_layer = {"encoder__heads": "[2, 4, 8]", "encoder__head_dim": "= width // encoder.heads"}
    assert answer("encoder.head_dim", **by_layer) == [16, 8, 4]
    assert answer("encoder.score_heads", **by_layer) == [2, 4, 8]
    wide = {HIDDEN: "= 4 * encoder.heads + width", **by_layer}
    assert answer("encoder.ffn.hidden", **wide) == [40, 48, 64]


def test_the_costs_are_those_of_the_layers() -> None:
    sizes = [8, 16, 64]
    mixed = bill(**{HIDDEN: str(sizes)})
    each = [bill(**{HIDDEN: str(size)}, encoder__depth="1") for size in sizes]
    one = bill(encoder__depth="1")
    three = bill()
    for name in ("params.total", "macs.total", "memory.activations"):
        rest = one[name] - (three[name] - one[name]) // 2
        assert mixed[name] == sum(alone[name] for alone in each) - 2 * rest, name


def test_alike_layers_are_one_network() -> None:
    plain = space().single_architecture().id
    assert {space(**{HIDDEN: text}).single_architecture().id
            for text in ("[24, 24, 24]", "ramp(24, 24)")} == {plain}
    assert space(**{HIDDEN: "[24, 24, 25]"}).single_architecture().id != plain
    assert space(**{HIDDEN: "[24, 25, 24]"}).single_architecture().id != space(
        **{HIDDEN: "[24, 24, 25]"}).single_architecture().id


def test_only_layers_of_one_shape_share() -> None:
    mixed = {HIDDEN: "[8, 8, 16]"}
    shared = bill(share__encoder__ffn="runs(2, 1)", **mixed)["params.total"]
    assert bill(**mixed)["params.total"] - shared == 2 * 32 * 8 + 8 + 32
    with pytest.raises(UnbuildableError) as caught:
        space(share__encoder__ffn="one", **mixed).single_architecture()
    assert caught.value.key == "share.encoder.ffn" and "0 and 2" in str(caught.value)


@pytest.mark.parametrize(("key", "changes"), [
    ("encoder.residual_scores", {"encoder__residual_scores": "previous"}),
    ("encoder.residual_scores", {"encoder__residual_scores": "global"}),
])
def test_what_needs_layers_alike_is_refused(key: str, changes: dict[str, str]) -> None:
    with pytest.raises(UnbuildableError) as caught:
        space(encoder__heads="[2, 4, 4]", encoder__head_dim="8", **changes).single_architecture()
    assert caught.value.key == key


def test_ctranslate2_has_one_number_of_heads() -> None:
    assert not find_unsupported_parts(space(**{HIDDEN: "[8, 16, 8]"},
                                            decoder__head_dim="[4, 8]").single_architecture().block)
    found = find_unsupported_parts(space(encoder__heads="[2, 4, 4]",
                                         encoder__head_dim="8").single_architecture().block)
    assert len(found) == 1 and found[0].startswith("encoder: ")


@pytest.mark.parametrize(("text", "place"),
                         [("[8, abc, 8]", "abc"), ("[8, = width, 8]", "= width"),
                          ("ramp(8)", "ramp"), ("[8, 0..3, 8]", "0")])
def test_what_is_no_size_is_shown_where_it_is(text: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        space(**{HIDDEN: text})
    assert place in str(caught.value)


def test_a_list_that_is_too_short_is_no_candidate() -> None:
    with pytest.raises(UnbuildableError) as caught:
        space(**{HIDDEN: "[8, 16]"}).single_architecture()
    assert caught.value.key == "encoder.ffn.hidden"


def test_lists_of_a_width_are_refused() -> None:
    with refuses("bad-value", "[32, 64]", place="--set"):
        space(width="[32, 64]")


def test_a_list_in_yaml_may_choose_item_by_item() -> None:
    layered = Space.parse(PLAIN.replace("hidden: 24", "hidden: [8 | 16, 8, 24..32 step 8]", 1))
    names = ["encoder.ffn.relu.hidden #1", "encoder.ffn.relu.hidden #3"]
    assert [name for name, _ in layered.parameters()] == names and layered.n_configurations() == 4
    assert {tuple(sheet["encoder.ffn.hidden"]) for sheet in layered.enumerate()} == {
        (8, 8, 24), (8, 8, 32), (16, 8, 24), (16, 8, 32)}
    assert Space.parse(layered.to_yaml()) == layered
    for sheet in layered.enumerate():
        assert layered.contains(sheet) and Space.parse(layered.architecture(sheet).to_yaml()).single_architecture().id == (  # noqa: E501
            layered.architecture(sheet).id)


def test_hats_space_has_its_size() -> None:
    """Width, then heads and hidden units of six encoder layers and of one to six decoder layers."""
    assert read_space(find_file("hat", "spaces")).n_configurations() == 2 * 6**6 * sum(
        6**depth for depth in range(1, 7))
