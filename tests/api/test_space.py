"""Spaces and architectures from Python: every form has one meaning, and costs are those of the command line."""

import json
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

import scalesearch as ss
from scalesearch.cli.calculator.cost import command as cost_verb
from scalesearch.cli.calculator.feasible import command as feasible_verb
from scalesearch.cli.calculator.solve import command as solve_verb
from scalesearch.cost import load_protocol
from tests.api.spaces import SMALL
from tests.errors import refuses


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return file


def told(verb, *words):
    """The JSON that a verb prints."""
    return json.loads(CliRunner().invoke(verb, [*map(str, words), "--json"]).stdout)


def test_a_file_a_text_a_name_and_python_forms_are_one_space(small):
    ffn = {"relu": {"hidden": 16}}
    forms = {"space": "small", "width": ss.OneOf(16, 24, 32), "norm": "pre",
             "encoder": {"depth": ss.Range(1, 2), "heads": 2, "ffn": ffn},
             "decoder": {"depth": 1, "heads": 2, "ffn": ffn},
             "cost": {"protocol": {"source": 8, "target": 8, "vocab": 60},
                      "budgets": {"tiny": "params.total <= 12k"}}}
    spaces = [ss.space(one) for one in (small, str(small), SMALL)]
    spaces += [ss.space(spaces[0]), ss.space(spaces[0].definition)]
    assert {one.definition.hash for one in spaces} == {spaces[0].definition.hash}
    assert ss.space(forms).size == spaces[0].size == 6 and ss.space(forms).budgets == spaces[
        0].budgets
    assert ss.space("slim").name == "slim" and ss.space("slim").size is None
    assert spaces[0].parameters == {"width": "16 | 24 | 32", "encoder.depth": "1 | 2"}


def test_keys_are_given_by_name_with_dots_and_nested(small):
    space = ss.space(small)
    ways = [space.architecture({"encoder.depth": 2}, width=24),
            space.architecture(width=24, encoder={"depth": 2}),
            space.set(width=24).architecture({"encoder.depth": "2"})]
    assert len({one.id for one in ways}) == 1 and space.set().definition is space.definition
    assert ss.space(ways[0].to_yaml()).architecture().id == ways[0].id


def test_samples_repeat_and_meet_what_must_hold(small):
    space = ss.space(SMALL + "where: [width >= 24]\n")
    some = [space.sample(seed) for seed in range(8)]
    assert some == [space.sample(seed) for seed in range(8)] and len({one.id for one in some}) > 1
    assert {one.config["width"] for one in some} == {24, 32}
    assert (space.smallest().config["width"], space.largest().config["width"]) == (24, 32)


def test_costs_are_those_of_the_command_line(small):
    mine = ss.space(small).architecture({"encoder.depth": 2}, width=24)
    words = (small, "--set", "width=24", "--set", "encoder.depth=2", "--protocol", "decode",
             "--source", 5)
    theirs = told(cost_verb, *words)
    assert mine.cost("decode", source=5).to_dict().items() <= theirs.items()
    named = load_protocol({"name": "decode", "source": 5, "target": 8, "vocab": 60})
    assert mine.cost(named).values == mine.cost("decode", source=5).values


def test_the_module_has_the_weights_that_are_billed(small):
    one = ss.space(small).architecture({"encoder.depth": 1}, width=16)
    module = one.module()
    assert sum(weight.numel() for weight in module.parameters()) == one.cost()["params.total"]
    assert one.module(vocab=8).state_dict().keys() == module.state_dict().keys()
    assert f"{one.cost()['params.total']:,}" in repr(one)


@pytest.mark.full
def test_what_fits_is_that_of_the_command_line(small):
    mine = ss.space(small).feasible("tiny")
    theirs = told(feasible_verb, small, "--budget", "tiny")
    assert json.loads(json.dumps(mine.to_dict())).items() <= {**theirs, "near": []}.items()
    assert mine.count == theirs["distinct_feasible"] and mine.share == theirs[
        "share"] and 0 < mine.share < 1
    assert mine.front()["params.non_embedding"].tolist() == [
        one["params.non_embedding"] for one in theirs["front"]]
    assert {"parameter", "value",
            "share"} <= set(mine.value_shares) and "violated" in mine.violations and len(
        mine.sampled_candidates)
    assert ss.space(small).feasible(["params.total <= 12k"], vocab=61).count is not None


def test_inverse_questions_are_those_of_the_command_line():
    space = ss.space("transformer")
    budget = "params.total <= 9M"
    mine = space.solve("max width", budget, {"encoder.depth": "1..3"}, step=8)
    words = ("transformer", "max width", "--budget", budget, "--for", "encoder.depth=1..3",
             "--step", 8)
    theirs = told(solve_verb, *words)
    assert mine.to_dict()["solutions"] == theirs["solutions"] and len(mine.frame()) == 3
    assert mine.value == theirs["solutions"][0]["best"]["value"]
    assert space.solve("max width", "params.total <= 1").value is None


def test_trades_keep_what_is_said():
    found = ss.space("transformer").trade("encoder.depth, decoder.depth", "params.total within 1%",
                                          {"encoder.depth": range(1, 13), "decoder.depth": "1..12"})
    assert {"encoder.depth", "decoder.depth",
            "params.total"} <= set(found.frame()) and found.value is None
    assert "trades that keep" in repr(found) and found.to_dict()["protocol"]["name"] == "forward"


def test_what_is_wrong_is_said_at_its_place(small):
    with refuses("no-such-file", "slimm", "slim"):
        ss.space("slimm")
    with refuses("bad-syntax", place="<python>:1"):
        ss.space({"width": "64 |"})
    with refuses("unknown-key", "widht", "width"):
        ss.space(small).architecture(widht=3)
    with refuses("open-parameters", "encoder.depth"):
        ss.space(small).architecture(width=16)
    with refuses("not-serializable", "None"):
        ss.space(small).set(width=None)
    with refuses("no-budget"):
        ss.space("transformer").feasible()
    with refuses("unknown-protocol", "decod"):
        ss.space(small).sample().cost("decod")


@pytest.mark.full
def test_numbers_that_cannot_be_are_refused(small):
    space = ss.space(small)
    with refuses("below-one", "draws"):
        space.feasible("params.total <= 1M", samples=-5)
    with refuses("bad-value", "vocab", "-3"):
        space.smallest().module(vocab=-3)
    for device in ("cuda:99", "nowhere"):
        with refuses("no-device", device):
            space.smallest().module(device=device)
    assert space.smallest().module(vocab=5, device="meta").embedding is not None
    with refuses("too-large", "64 bits"):
        ss.space("transformer").set(width=10**9).feasible("params.total <= 10M")


def test_keys_alone_have_the_sizes_of_the_space():
    space = ss.space({"width": "8 | 16", "encoder": {"heads": 1}, "decoder": {"heads": 1}})
    rows = [list(space.solve("max encoder.depth", "params.total <= 1M",
                             for_each=each).frame()["width"])
            for each in ("width", ["width"], {"width": None}, {"width": "8 | 16"})]
    assert rows == [[8, 16]] * 4


def test_a_length_that_no_protocol_has_is_refused_with_what_is_meant(small):
    space = ss.space(str(small))
    architecture = space.smallest()
    for ask in (architecture.cost, space.feasible,
                partial(space.solve, "max width", "params.total <= 1M")):
        with refuses("unknown-argument", "sources", "did you mean `source`?"):
            ask(sources=50)
    assert architecture.cost(source=50)["macs.total"] > architecture.cost(source=5)["macs.total"]
