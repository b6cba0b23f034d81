"""Every name of a parameter that is printed is accepted wherever a parameter is named."""

import random
from pathlib import Path

import pandas as pd
import pytest

from scalesearch.cost import load_protocol
from scalesearch.feasible.nearest import ProjectedCandidate
from scalesearch.report.table import architecture_lines, differing_columns
from scalesearch.report.trial_filter import filter_trials
from scalesearch.spaces import ConfigError, Space, UnbuildableError, read_space
from scalesearch.spaces.parameters.constraints import Constraint
from scalesearch.spaces.syntax.parameters import format_constant
from scalesearch.studies.trials.trial import parse_event
from scalesearch.whatif import cite, solve, sweep_costs
from tests.errors import refuses
from tests.report.trial_records import OBJECTIVES, record, trials_table

SPACES = Path(__file__).parents[3] / "spaces"
ENDS = """
decoder: {depth: 1, heads: 2, ffn: {relu: {hidden: 16}}}
cost: {protocol: {source: 8, target: 8, vocab: 200}}
"""
LAYERS = f"""
width: 16
encoder: {{depth: 1..2, heads: 2, ffn: {{relu: {{hidden: "[16 | 32, 16 | 32]"}}}}}}
{ENDS}"""
NESTED = f"""
width: 16 | 24
encoder: {{depth: 1, heads: 2, ffn: {{relu: {{hidden: 16 | 32}}}}}}
{ENDS}"""
CONDITION = f"""
width: 16
norm: pre | post
last_norm: yes | no if norm == pre else yes
encoder: {{depth: 1, heads: 2, ffn: {{relu: {{hidden: 16}}}}}}
{ENDS}"""
LAYER_NAMES = ["encoder.ffn.relu.hidden[1]", "encoder.ffn.relu.hidden[2]"]


def id_of(space: Space, **overrides: str) -> str:
    return space.with_overrides(overrides).single_architecture().id


@pytest.mark.parametrize("source", [LAYERS, NESTED, CONDITION, *sorted(SPACES.glob("*.yaml"))],
                         ids=lambda source: getattr(source, "stem", "text"))
def test_a_sample_is_reproduced_by_setting_its_parameters_by_name(source: str | Path) -> None:
    space = read_space(source) if isinstance(source, Path) else Space.parse(source)
    rng = random.Random(1)
    n_compared = 0
    for _ in range(6):
        values = space.sample(rng)
        try:
            sampled = space.architecture(values)
        except UnbuildableError:
            continue
        if space.violated_constraints(values):
            continue
        overrides = {name: format_constant(value) for name, value in values.params.items()}
        assert id_of(space, **overrides) == sampled.id
        n_compared += 1
    assert n_compared


def test_layers_are_set_by_name_with_and_without_the_variant() -> None:
    space = Space.parse(LAYERS)
    assert [name for name, _ in space.parameters()] == ["encoder.depth", *LAYER_NAMES]
    listed = id_of(space, **{"encoder.depth": "2", "encoder.ffn.relu.hidden": "[16, 32]"})
    for first, last in (LAYER_NAMES, ("encoder.ffn.hidden[first]", "encoder.ffn.hidden[last]")):
        assert id_of(space, **{"encoder.depth": "2", first: "16", last: "32"}) == listed
    fixed = Space.parse(LAYERS).with_overrides({"encoder.depth": "2",
                                                "encoder.ffn.relu.hidden": "16"})
    assert id_of(fixed, **{"encoder.ffn.relu.hidden[2]": "32"}) == listed


def test_ends_of_a_ramp_are_named() -> None:
    space = Space.parse(LAYERS).with_overrides({
        "encoder.depth": "2", "encoder.ffn.relu.hidden": "ramp(16 | 24, 32 | 64)"})
    names = ["encoder.ffn.relu.hidden[first]", "encoder.ffn.relu.hidden[last]"]
    assert [name for name, _ in space.parameters()] == names
    assert space.with_overrides(dict(zip(names, ("24", "32")))).single_architecture().config[
        "encoder.ffn.hidden"] == [24, 32]
    with refuses("unknown-key", *names, place="--set"):
        space.with_overrides({"encoder.ffn.relu.hidden[2]": "16"})


@pytest.mark.parametrize(("name", "code"), [
    ("encoder.ffn.relu.hidden[3]", "unknown-key"), ("encoder.ffn.relu.hidden[0]", "unknown-key"),
    ("encoder.ffn.geglu.hidden[1]", "unknown-key"), ("encoder.wdith[1]", "unknown-key"),
    ("width[1]", "unknown-key"), ("norm[1]", "unknown-key"), ("encoder[1]", "unknown-key")])
def test_unknown_layers_are_refused(name: str, code: str) -> None:
    with refuses(code, place="--set"):
        Space.parse(LAYERS).with_overrides({name: "16"})
    with refuses("bad-value", place="--set"):
        Space.parse(LAYERS).with_overrides({LAYER_NAMES[0]: "relu"})


def constraint_of(text: str) -> Constraint:
    return Space.parse(f"{LAYERS}where: ['{text}']").constraints[0]


@pytest.mark.parametrize(("condition", "depth", "hidden", "holds"), [
    ("encoder.ffn.relu.hidden[2] <= 16", 2, [32, 16], True),
    ("encoder.ffn.hidden[2] <= 16", 2, [16, 32], False),
    ("encoder.ffn.hidden[last] <= 16", 2, [16, 32], False),
    ("encoder.ffn.hidden[first] <= 16", 2, [16, 32], True),
    ("encoder.ffn.hidden[2] <= 16", 2, 32, False),  # one size for all layers
    ("encoder.ffn.hidden[2] <= 16", 1, 32, True)])  # no such layer: nothing to violate
def test_conditions_name_layers(condition: str, depth: int, hidden: object, holds: bool) -> None:
    constraint = constraint_of(condition)
    config = {"encoder.depth": depth, "encoder.ffn": "relu", "encoder.ffn.hidden": hidden}
    assert constraint.is_satisfied(config.__getitem__) == holds
    assert constraint.referenced_names() >= {"encoder.depth", "encoder.ffn.hidden"}
    assert constraint_of(constraint.text) == constraint


@pytest.mark.parametrize(("condition", "code"), [
    ("width[1] <= 16", "bad-value"), ("encoder.ffn.relu.hidden[0] <= 16", "bad-syntax"),
    ("encoder.ffn.relu.hidden[i] <= 16", "bad-syntax")])
def test_conditions_on_unknown_layers_are_refused(condition: str, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        constraint_of(condition)
    assert caught.value.code == code


@pytest.mark.parametrize(("text", "settings", "names"), [
    (LAYERS, {"encoder.depth": "1"}, LAYER_NAMES[:1]),
    (LAYERS, {"encoder.depth": "2", LAYER_NAMES[0]: "16"}, LAYER_NAMES[1:]),
    (LAYERS, {"encoder.depth": "1", LAYER_NAMES[0]: "16"}, []),
    (CONDITION, {"norm": "post"}, []), (CONDITION, {"norm": "pre"}, ["last_norm"])])
def test_only_parameters_that_may_exist_are_asked_for(text: str, settings: dict[str, str],
                                                      names: list[str]) -> None:
    space = Space.parse(text).with_overrides(settings)
    assert [*space.parameter_space.open_parameters()] == names
    if names:
        with refuses("open-parameters", *names) as caught:
            space.single_architecture()
        assert not [name for name, _ in space.parameters()
                    if name not in names and name in str(caught.value)]
    else:
        space.single_architecture()


def test_a_parameter_with_a_single_value_is_not_asked_for() -> None:
    space = Space.parse(NESTED).with_overrides({"width": "16"}).with_overrides({
        "encoder.key_value_heads": "1 | 2 if encoder.heads == 4 else off",
        "encoder.ffn.relu.hidden": "16"})
    assert space.single_architecture().config["encoder.key_value_heads"] == "off"


def trials() -> pd.DataFrame:
    config = {"encoder.depth": 2, "encoder.ffn": "relu"}
    return trials_table([
        record(number, bleu, 10, 10, **{**config, "encoder.ffn.hidden": hidden, "width": 24})
        for number, (bleu, hidden) in enumerate([(1.0, 16), (2.0, 32), (3.0, [16, 32])])],
        OBJECTIVES)


def test_tables_name_parameters_as_the_space_does() -> None:
    table = trials()
    names = [name for name, _ in Space.parse(NESTED).parameters()]
    assert differing_columns(table, names) == ["param.encoder.ffn.relu.hidden"]
    assert differing_columns(table, LAYER_NAMES) == ["param.encoder.ffn.relu.hidden"]
    assert architecture_lines(table, names) == [
        *(f"trial {number}: encoder.ffn.relu.hidden {value}"
          for number, value in enumerate(("16", "32", "[16, 32]"))), "all: width 24"]


@pytest.mark.parametrize(("condition", "numbers"), [
    ("encoder.ffn.relu.hidden <= 16", [0]), ("encoder.ffn.hidden <= 16", [0]),
    ("encoder.ffn.relu.hidden[2] <= 16", [0]), ("encoder.ffn.hidden[2] == 32", [1, 2]),
    ("encoder.ffn.hidden[1] == 16", [0, 2]), ("encoder.ffn.hidden[3] == 16", []),
    ("encoder.ffn == relu", [0, 1, 2])])
def test_filters_accept_the_names_of_the_space(condition: str, numbers: list[int]) -> None:
    assert filter_trials(trials(), condition)["trial"].tolist() == numbers


def test_filters_refuse_parameters_that_no_trial_has() -> None:
    with refuses("unknown-key", "encoder.ffn.geglu.hidden", place="condition"):
        filter_trials(trials(), "encoder.ffn.geglu.hidden <= 16")


@pytest.mark.full
def test_inverse_queries_sweeps_and_formulas_name_parameters_as_the_space_does() -> None:
    space = Space.parse(NESTED).with_overrides({"width": "16", "encoder.ffn.relu.hidden": "16"})
    name = "encoder.ffn.relu.hidden"
    for key in (name, "encoder.ffn.hidden"):
        assert solve(space, f"max {key}", "params.total <= 1M")[0].key == name
        assert sweep_costs(space, {key: "8 | 16"}).keys == (name,)
    formulas = cite(space, space.single_architecture().config, load_protocol(space.protocol))
    assert name in formulas.values and "decoder.ffn.relu.hidden" in formulas.values
    layers = Space.parse(LAYERS).with_overrides({"encoder.depth": "2", LAYER_NAMES[0]: "16"})
    sweep = sweep_costs(layers, {LAYER_NAMES[1]: "16 | 32"})
    assert [row[LAYER_NAMES[1]] for row in sweep.rows] == [16, 32]
    assert sweep.rows[0]["params.total"] < sweep.rows[1]["params.total"]


SCHEDULES = f"""
width: 16
encoder: {{depth: 12 | 3, heads: 2, ffn: {{relu: {{hidden: 16}}}}}}
share.encoder.ffn: "own | runs(1, 11) if encoder.depth == 12 else own | runs(1, 2)"
share.encoder.attention: own | runs(1, 11) | runs(1, 2)
{ENDS}"""


def test_schedules_that_no_longer_fit_are_left_out_with_a_note(
        capsys: pytest.CaptureFixture[str]) -> None:
    space = Space.parse(SCHEDULES, "schedules.yaml").with_overrides({"encoder.depth": "3"})
    assert {name: str(parameter) for name, parameter in space.parameters()} == {
        "share.encoder.ffn": "own | runs(1, 2)", "share.encoder.attention": "own | runs(1, 2)"}
    notes = capsys.readouterr().err.splitlines()
    assert sorted(note.split(" note: ")[0] for note in notes) == [
        "schedules.yaml:4:27:", "schedules.yaml:5:32:"]
    assert all("runs(1, 11)" in note for note in notes)
    assert Space.parse(space.to_yaml()) == space


def test_schedules_that_the_override_sets_must_fit() -> None:
    for key in ("share.encoder.ffn", "share.encoder.attention"):
        with refuses("no-depth-fits", "runs(1, 4)", place="--set"):
            Space.parse(SCHEDULES).with_overrides({"encoder.depth": "3", key: "own | runs(1, 4)"})
    only = SCHEDULES.replace("own | runs(1, 11) | runs(1, 2)", "runs(1, 11)")
    with refuses("no-depth-fits", "runs(1, 11)"):
        Space.parse(only).with_overrides({"encoder.depth": "3"})


def test_earlier_names_of_layers_in_the_log_of_a_study_are_read() -> None:
    line = (b'{"line": 1, "type": "proposed", "trial": 0, "time": "2026-01-01T00:00:00.000", '
            b'"state": "pending", "params": {"width": 16, "encoder.ffn.relu.hidden #2": 32}}')
    trial = parse_event(line).proposed_trial
    assert trial and trial.params == {"width": 16, "encoder.ffn.relu.hidden[2]": 32}


def test_layers_of_an_architecture_outside_the_space_are_compared_one_by_one() -> None:
    space = Space.parse(LAYERS)
    config = space.with_overrides({"encoder.depth": "2", "encoder.ffn.relu.hidden": "[30, 32]"}
                                  ).single_architecture().config
    start = ProjectedCandidate(space, config)
    assert start.changed_params == {LAYER_NAMES[0]: (30, 32)}
    assert start.param_values["encoder.ffn.hidden"] == 32
