"""Spaces and architectures from Python: all input forms are equivalent, costs equal the CLI's."""

import copy
import json
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import scalesearch as ss
from scalesearch.cli.cost import command as cost_verb
from scalesearch.cli.feasible import command as feasible_verb
from scalesearch.cli.solve import command as solve_verb
from scalesearch.cost import load_protocol
from tests.api.spaces import SMALL
from tests.errors import refuses


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return file


def cli_json(verb, *words):
    """The JSON that a command prints."""
    return json.loads(CliRunner().invoke(verb, [*map(str, words), "--json"]).stdout)


def test_file_text_name_and_python_forms_give_one_space(small):
    ffn = {"relu": {"hidden": 16}}
    forms = {"space": "small", "width": ss.OneOf(16, 24, 32), "norm": "pre",
             "encoder": {"depth": ss.Range(1, 2), "heads": 2, "ffn": ffn},
             "decoder": {"depth": 1, "heads": 2, "ffn": ffn},
             "cost": {"protocol": {"source": 8, "target": 8, "vocab": 60},
                      "budgets": {"tiny": "params.total <= 12k"}}}
    spaces = [ss.space(form) for form in (small, str(small), SMALL)]
    spaces += [ss.space(spaces[0]), ss.space(spaces[0].definition)]
    assert {space.definition.hash for space in spaces} == {spaces[0].definition.hash}
    assert ss.space(forms).size == spaces[0].size == 6 and ss.space(forms).budgets == spaces[
        0].budgets
    assert ss.space("slim").name == "slim" and ss.space("slim").size is None
    assert spaces[0].parameters == {"width": "16 | 24 | 32", "encoder.depth": "1 | 2"}


def test_keys_may_be_dotted_nested_or_keywords(small):
    space = ss.space(small)
    architectures = [space.architecture({"encoder.depth": 2}, width=24),
            space.architecture(width=24, encoder={"depth": 2}),
            space.set(width=24).architecture({"encoder.depth": "2"})]
    assert len({architecture.id for architecture in architectures}) == 1
    assert space.set().definition is space.definition
    assert ss.space(architectures[0].to_yaml()).architecture().id == architectures[0].id


def test_nested_variants_are_selected_as_in_a_file():
    space = ss.space("small/plain").set({"encoder.ffn": "relu | swiglu | none"})
    for ffn in ({"relu": {"hidden": 64}}, ss.Variants(relu={"hidden": 64})):
        changed = space.set(encoder={"ffn": ffn}).smallest()
        assert (changed.config["encoder.ffn"], changed.config["encoder.ffn.hidden"]) == ("relu", 64)
    changed = space.set(encoder={"ffn": ss.Variants(relu={}, none={})}, embedding={"tie": "none"})
    assert changed.parameters["encoder.ffn"] == "relu | none"
    assert changed.smallest().config["embedding.tie"] == "none"


def test_rows_of_a_front_are_values(small):
    space = ss.space(small).set({"encoder.ffn": {"one of": {"relu": {"hidden": "8 | 16"},
                                                            "none": {}}}})
    front = space.feasible("tiny").front()
    assert front.isna().any(axis=None)
    for _, row in front.iterrows():
        for values in (row, row.to_dict()):
            architecture = space.architecture(values)
            assert architecture.cost()["params.non_embedding"] == row["params.non_embedding"]
        for wrong in ({"fits": True}, {"params.total": "<= 1M"}):
            with refuses("unknown-key", *wrong):
                space.architecture({**row, **wrong})


def test_numpy_numbers_are_values():
    space = ss.space({"width": np.int64(64), "norm": "pre"})
    assert space.set(width=np.int64(96)).architecture().config["width"] == 96
    assert space.architecture().config["width"] == 64


def test_values_can_be_pickled_and_copied(small):
    space = ss.space(small)
    for value in (space, space.smallest().cost(), space.feasible("tiny"),
                  ss.space("transformer").solve("max width", "params.total <= 9M", step=8)):
        assert repr(pickle.loads(pickle.dumps(value))) == repr(copy.deepcopy(value)) == repr(value)


def test_costs_are_a_mapping(small):
    costs = ss.space(small).smallest().cost()
    assert "params.total" in costs and "load.balance" in costs and "params.totl" not in costs
    assert dict(costs).items() > dict(costs.values).items() and len(costs) == len(list(costs))


def test_samples_are_reproducible_and_meet_constraints(small):
    space = ss.space(SMALL + "where: [width >= 24]\n")
    samples = [space.sample(seed) for seed in range(8)]
    assert samples == [space.sample(seed) for seed in range(8)]
    assert len({sample.id for sample in samples}) > 1
    assert {sample.config["width"] for sample in samples} == {24, 32}
    assert (space.smallest().config["width"], space.largest().config["width"]) == (24, 32)


def test_costs_equal_those_of_the_command_line(small):
    mine = ss.space(small).architecture({"encoder.depth": 2}, width=24)
    words = (small, "--set", "width=24", "--set", "encoder.depth=2", "--protocol", "decode",
             "--source", 5)
    output = cli_json(cost_verb, *words)
    assert mine.cost("decode", source=5).to_dict().items() <= output.items()
    named = load_protocol({"name": "decode", "source": 5, "target": 8, "vocab": 60})
    assert mine.cost(named).values == mine.cost("decode", source=5).values


def test_module_has_the_predicted_number_of_weights(small):
    architecture = ss.space(small).architecture({"encoder.depth": 1}, width=16)
    module = architecture.module()
    n_params = sum(weight.numel() for weight in module.parameters())
    assert n_params == architecture.cost()["params.total"]
    assert architecture.module(vocab=8).state_dict().keys() == module.state_dict().keys()
    assert f"{n_params:,}" in repr(architecture)


@pytest.mark.full
def test_feasible_region_equals_that_of_the_command_line(small):
    mine = ss.space(small).feasible("tiny")
    output = cli_json(feasible_verb, small, "--budget", "tiny")
    assert json.loads(json.dumps(mine.to_dict())).items() <= {**output, "near": []}.items()
    assert mine.count == output["distinct_feasible"] and mine.share == output[
        "share"] and 0 < mine.share < 1
    assert mine.front()["params.non_embedding"].tolist() == [
        row["params.non_embedding"] for row in output["front"]]
    assert {"parameter", "value",
            "share"} <= set(mine.value_shares) and "violated" in mine.violations and len(
        mine.sampled_candidates)
    assert ss.space(small).feasible(["params.total <= 12k"], vocab=61).count is not None


def test_solutions_equal_those_of_the_command_line():
    space = ss.space("transformer")
    budget = "params.total <= 9M"
    mine = space.solve("max width", budget, {"encoder.depth": "1..3"}, step=8)
    words = ("transformer", "max width", "--budget", budget, "--for", "encoder.depth=1..3",
             "--step", 8)
    output = cli_json(solve_verb, *words)
    assert mine.to_dict()["solutions"] == output["solutions"] and len(mine.frame()) == 3
    assert mine.value == output["solutions"][0]["best"]["value"]
    assert space.solve("max width", "params.total <= 1").value is None


def test_trades_keep_the_constraint():
    trades = ss.space("transformer").trade(
        "encoder.depth, decoder.depth", "params.total within 1%",
        {"encoder.depth": range(1, 13), "decoder.depth": "1..12"})
    assert {"encoder.depth", "decoder.depth",
            "params.total"} <= set(trades.frame()) and trades.value is None
    assert "within 1%" in repr(trades) and trades.to_dict()["protocol"]["name"] == "forward"


def test_errors_have_code_and_position(small):
    with refuses("no-such-file", "slimm", "slim"):
        ss.space("slimm")
    with refuses("bad-syntax", place="width: "):
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
def test_invalid_numbers_are_rejected(small):
    space = ss.space(small)
    with refuses("below-one", "samples"):
        space.feasible("params.total <= 1M", samples=-5)
    with refuses("bad-value", "vocab", "-3"):
        space.smallest().module(vocab=-3)
    for device in ("cuda:99", "nowhere"):
        with refuses("no-device", device):
            space.smallest().module(device=device)
    assert space.smallest().module(vocab=5, device="meta").embedding is not None
    with refuses("too-large", "64 bits"):
        ss.space("transformer").set(width=10**9).feasible("params.total <= 10M")


def test_keys_without_values_take_those_of_the_space():
    space = ss.space({"width": "8 | 16", "encoder": {"heads": 1}, "decoder": {"heads": 1}})
    rows = [list(space.solve("max encoder.depth", "params.total <= 1M",
                             for_each=keys).frame()["width"])
            for keys in ("width", ["width"], {"width": None}, {"width": "8 | 16"})]
    assert rows == [[8, 16]] * 4


def test_unknown_protocol_length_is_rejected_with_a_suggestion(small):
    space = ss.space(str(small))
    architecture = space.smallest()
    for method in (architecture.cost, space.feasible,
                   partial(space.solve, "max width", "params.total <= 1M")):
        with refuses("unknown-argument", "sources", "did you mean `source`?"):
            method(sources=50)
    assert architecture.cost(source=50)["macs.total"] > architecture.cost(source=5)["macs.total"]


SPACE = """
width: 16 | 24
encoder: {depth: 1, heads: 2, ffn: {relu: {hidden: 16}}}
decoder: {depth: 1, heads: 2, ffn: {relu: {hidden: 16}}}
"""


@pytest.mark.parametrize(("call", "argument"), [
    (lambda space: ss.space(5), "source"), (lambda space: ss.space([1]), "source"),
    (lambda space: ss.study(3), "source"), (lambda space: ss.load(3), "folder"),
    (lambda space: ss.train(5), "architecture"),
    (lambda space: ss.train(space.largest(), 5), "data"),
    (lambda space: ss.train(space.largest(), "builtin", 5), "recipe"),
    (lambda space: ss.train(space.largest(), report=True), "report"),
    (lambda space: ss.compress(5, "quick"), "model"), (lambda space: space.feasible(5), "budget"),
    (lambda space: space.feasible([5]), "budget"), (lambda space: space.solve(1, 2), "goal"),
    (lambda space: space.solve("max width", 2), "budget"),
    (lambda space: space.solve("max width", "params.total <= 1M", 5), "for_each"),
    (lambda space: space.solve("max width", "params.total <= 1M", step="a"), "step"),
    (lambda space: space.trade(5, "macs.total within 1%"), "keys"),
    (lambda space: space.trade("width, encoder.depth", 5), "hold"),
    (lambda space: space.set("x"), "values"), (lambda space: space.architecture("x"), "values"),
    (lambda space: space.sample("a"), "seed"),
    (lambda space: space.architecture(width=16).cost(5), "protocol"),
    (lambda space: space.architecture(width=16).cost(vocab="a"), "vocab")])
def test_arguments_of_other_types_are_refused(call, argument):
    with refuses("bad-value", place=f"{argument}: expected "):
        call(ss.space(SPACE))


@pytest.mark.parametrize("call", [
    ss.space, ss.study, ss.load, ss.train, partial(ss.compress, recipe="quick"),
    ss.from_huggingface, lambda name: ss.space(SPACE).smallest().cost(recipe=name),
    lambda name: ss.train(ss.space(SPACE).smallest(), out=name)])
def test_names_too_long_for_a_file_are_refused(call):
    with refuses("cannot-read", "x" * 300):
        call("x" * 300)


def test_unusable_paths_can_be_displayed():
    name = "x" * 300
    assert name in repr(ss.study("quick", out=name)).replace("\n", "")
    with refuses("no-latency-fit", name):
        repr(ss.space(SPACE).smallest().cost(latency=name))


def test_unknown_keywords_name_the_function():
    with pytest.raises(TypeError, match=r"^train\(\): .*'stps'"):
        ss.train(SPACE, stps=3)
    with pytest.raises(TypeError, match=r"^compress\(\): .*'bugdet'.*`budget`"):
        ss.compress("runs/model", bugdet="params.total <= 1M")  # without a recipe
