"""Static checks of a space, which report only problems of all configurations."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.feasible.limits import read_budgets
from scalesearch.spaces import ConfigError, Space
from tests.errors import refuses
from tests.spaces.small import SMALL, small

TERMS = st.sampled_from(
    ["width", "encoder.depth", "encoder.heads", "3", "7", "encoder.ffn.hidden", "2 * width",
     "width - encoder.depth", "width / 3", "width // 3", "width % 3", "max(width, 5)",
     "sqrt(width)", "encoder.depth ** 2", "-width", "(width if light else 2)"])
OPS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
ATOMS = st.one_of(st.tuples(TERMS, OPS, TERMS).map(" ".join),
                  st.sampled_from(["norm == post", "norm != pre", "light", "encoder.ffn == relu",
                                   "share.encoder.ffn == own"]))
TRUTHS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        inner.map("not ({})".format),
        st.tuples(inner, inner).map(lambda t: f"({t[0]}) and ({t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]}) or ({t[1]})"),
    ),
    max_leaves=4,
)
BASE = (
    "width: 2 | 4..6\nnorm: pre\nlight: yes | no\n"
    "encoder:\n  depth: 1 | 3 if light else = width\n  heads: 2..3\n"
    "  ffn: { one of: { relu: { hidden: 2 | 9 }, none: {} } }\n"
)


@given(TRUTHS)
@settings(max_examples=150)
def test_constraint_is_rejected_only_if_no_configuration_satisfies_it(text):
    free = small(BASE)
    try:
        space = small(f"{BASE}where:\n  - {text}\n")
    except ConfigError as errors:
        assert "no candidate can satisfy this constraint" in str(errors)
        probe = small(f"{BASE}where:\n  - ({text}) or params.total > 0\n").constraints[
            0].expression.operands[0]
        from scalesearch.spaces.parameters.constraints import Constraint

        assert not any(Constraint(probe, None).is_satisfied(config.__getitem__)
                       for config in free.enumerate())
    else:
        assert any(not space.violated_constraints(config) for config in space.enumerate())


def test_only_keys_of_the_constraint_are_enumerated():
    text = ("width: 1..1000000\nencoder.depth: 1..90\ndecoder.depth: 1..90\nrate: "
            "0.1..0.5\nwhere:\n  - {}\n")
    with refuses("never-true"):
        small(text.format("encoder.depth * decoder.depth == 8100 + encoder.depth"))
    for unproven in ("encoder.depth > width + 90", "rate > 1", "width == 899999",
                     "params.total < 0"):
        small(text.format(unproven))


def test_large_space_is_counted_without_enumeration():
    lines = "".join(f"  - width + encoder.depth + decoder.depth >= {n}\n" for n in range(20))
    space = small("width: 1..1000000\nencoder.depth: 1..1000000\ndecoder.depth: "
                  f"1..1000000\nwhere:\n{lines}")
    assert space.n_configurations() == 10**18


def test_conditions_couple_only_their_own_keys():
    text = ("width: 1..200\nlight: yes | no\nnorm: pre | post\nencoder.depth: {}\ndecoder.depth: "
            "{}\n")
    both = text.format("1 | 2 if width > 100 else 3", "1..50 if light else 2")
    assert small(both).n_configurations() == (100 * 2 + 100) * 2 * (50 + 1)


def test_too_many_dependencies_to_count_are_reported(monkeypatch):
    monkeypatch.setattr("scalesearch.spaces.parameters.count.MAX_ENUMERATED", 100)
    space = small("width: 1..200\nencoder.depth: 1 | 2 if width > 100 else 3\n")
    with refuses("too-many-dependencies", 100):
        space.n_configurations()


def test_schedule_must_fit_a_possible_depth():
    small("width: 4\nencoder.depth: 4..6\nshare.encoder.ffn: cycle(5)\n")
    # the possible depths are not enumerated, so the schedule is not rejected
    small("width: 4\nencoder.depth: = width + 1\nshare.encoder.ffn: cycle(7)\n")
    with refuses("no-depth-fits"):
        Space.from_python({"width": 4, "encoder": {"depth": "3 | 4"},
                           "share": {"encoder.ffn": "cycle(5..7)"}}, SMALL)


BROKEN = """\
width: 64..32
encoder: {heads: wrong}
share: {encoder.ffn: 1-11, decoder.ffn: 3-4}
decoder: {depth: 2..4, head_dim: = encoder.heads}
where:
  - decoder.depht < 3
  - decoder.depth < 0
  - decoder.head_dim < 0
"""


def test_syntax_and_static_checks_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(BROKEN)
    lines = [(problem.position.line + 1, problem.message) for problem in caught.value.problems]
    assert [line for line, _ in lines] == [1, 2, 3, 3, 6, 7]
    assert "fits no possible depth" in lines[2][1] and "no candidate can satisfy" in lines[5][1]


def test_keys_that_depend_on_an_invalid_key_are_not_checked() -> None:
    """head_dim is computed from an invalid key, so line 8 cannot be checked."""
    with pytest.raises(ConfigError) as caught:
        Space.parse(BROKEN)
    assert all(problem.position.line != 7 for problem in caught.value.problems)


@pytest.mark.parametrize("line", ["where: [encoder.ffn.gelu.hidden <= 32]",
                                  "cost.budgets.a: encoder.ffn.gelu.hidden[1] <= 32",
                                  "decoder.heads: 2 if encoder.ffn.gelu.hidden <= 32 else 4"])
def test_keys_that_no_candidate_has_are_warned_of(line, capsys):
    text = f"width: 16\nencoder.ffn.relu.hidden: 16\n{line}"
    space = Space.parse(text, line)
    warning = capsys.readouterr().err
    assert warning.startswith(f"{line}:3:") and "encoder.ffn.gelu.hidden" in warning
    read_budgets(space, ["encoder.ffn.hidden <= 16 and params.total <= 1M"])
    assert not capsys.readouterr().err
    read_budgets(space, [f"encoder.ffn.geglu.hidden <= {len(line)}"])
    assert "encoder.ffn.geglu.hidden" in capsys.readouterr().err
