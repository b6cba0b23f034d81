"""Keys of mixers: attention's beside `mixer` or inside it, those of others only inside; `mixing` for `attention`."""

import pytest

from scalesearch.blocks.mixers import MIXERS
from scalesearch.space import ConfigError, Space
from tests.blocks.test_own_mixer import LightConv

FLAT = """
width: 16
encoder:
  depth: 2
  heads: 2 | 4
  gate: none | QgV
decoder: { depth: 1, heads: 4, relative_clip: 3 }
share: { encoder.attention: own | one, decoder.self: 'encoder.attention[1]' }
"""
NESTED = """
width: 16
encoder:
  depth: 2
  mixer:
    one of:
      attention: { heads: 2 | 4, gate: none | QgV }
decoder: { depth: 1, mixer.attention: { heads: 4, relative_clip: 3 } }
share: { encoder.mixing: own | one, decoder.self: 'encoder.mixing[1]' }
"""
MIXED = """
width: 16
encoder:
  depth: 1 | 2
  mixer:
    one of:
      attention: { heads: 2 | 4 | 8, pg: none | relu }
      lightconv: { kernel: 3 | 5 }
  score_heads: = 2 if heads > 2 else heads
decoder: { depth: 1, heads: 2 | 4, mixer: attention | lightconv, gate: none | QgV }
"""


@pytest.fixture
def lightconv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MIXERS, "lightconv", LightConv)


def test_keys_of_attention_mean_the_same_beside_the_mixer_and_inside() -> None:
    assert Space.parse(NESTED).to_yaml() == Space.parse(FLAT).to_yaml()


@pytest.mark.parametrize(("key", "value"),
                         [("encoder.mixer.attention.heads", "8"), ("share.encoder.mixing", "one")])
def test_either_spelling_can_be_set(key: str, value: str) -> None:
    own = {"encoder.mixer.attention.heads": "encoder.heads",
           "share.encoder.mixing": "share.encoder.attention"}[key]
    for text in (FLAT, NESTED):
        assert Space.parse(text).with_overrides({key: value}) == Space.parse(FLAT).with_overrides(
            {own: value})


def test_either_spelling_is_a_name_in_expressions() -> None:
    more = "where:\n  - {} != 8 or {} == one\n"
    first = Space.parse(FLAT + more.format("encoder.heads", "share.encoder.attention"))
    assert Space.parse(
        FLAT + more.format("encoder.mixer.attention.heads", "share.encoder.mixing")) == first


@pytest.mark.parametrize("lines", ["encoder: { heads: 2, mixer: { attention: { heads: 4 } } }",
                                   "share: { encoder: { mixing: one, attention: one } }"])
def test_both_spellings_at_once_are_refused(lines: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: 16\n{lines}\n")
    assert [problem.position.line for problem in caught.value.problems] == [1]


def test_keys_of_a_mixer_come_up_with_it_alone(lightconv: None) -> None:
    for answers in Space.parse(MIXED).enumerate():
        attention = answers["encoder.mixer"] == "attention"
        kernel = "encoder.mixer.kernel" in answers
        assert attention != kernel
        assert {name: f"encoder.{name}" in answers
                for name in ("heads", "pg", "gate")} == dict.fromkeys(
            ("heads", "pg", "gate"), attention)
        assert "decoder.heads" in answers  # cross-attention's
        assert ("decoder.gate" in answers) == (answers["decoder.mixer"] == "attention")


def test_sheets_are_counted_without_being_listed(lightconv: None) -> None:
    space = Space.parse(MIXED)
    sheets = list(space.enumerate())
    assert space.n_configurations() == len(sheets) == len(set(sheets)) == 2 * (
        3 * 2 + 2) * 2 * (2 + 1)
    assert len({space.architecture(sheet).id
                for sheet in sheets if not space.violated_constraints(sheet)}) > len(sheets) / 2


def test_an_architecture_with_another_mixer_is_a_file(lightconv: None) -> None:
    space = Space.parse(MIXED)
    for answers in list(space.enumerate())[::7]:
        if not space.violated_constraints(answers):
            network = space.architecture(answers)
            assert Space.parse(network.to_yaml()).single_architecture().id == network.id


@pytest.mark.parametrize(("lines", "places"), [
    ("encoder:\n  depth: 1\n  heads: 2\n  mixer: lightconv\n  pg: relu\n", [3, 5]),
    ("encoder.mixer: { lightconv: { kernel: 3 } }\nencoder.gate: QgV\n", [2]),
    # cross-attention has heads as well
    ("decoder: { mixer: lightconv, heads: 2,\n  gate: QgV }\n", [2]),
    ("encoder: { mixer: attention | lightconv, heads: 2 }\n", []),
    ("encoder: { mixer: = attention if width > 8 else lightconv, heads: 2 }\n", []),
])
def test_keys_of_attention_where_there_is_none_are_refused(
        lightconv: None, lines: str, places: list[int]) -> None:
    text = f"width: 16\n{lines}"
    if not places:
        Space.parse(text)
        return
    with pytest.raises(ConfigError) as caught:
        Space.parse(text)
    assert [(problem.code, problem.position.line) for problem in caught.value.problems] == [
        ("unused-key", line) for line in places]


def test_setting_another_mixer_takes_attention_s_keys_away(lightconv: None) -> None:
    space = Space.parse(FLAT).with_overrides(
        {"encoder.mixer": "lightconv", "share.encoder.attention": "own",
         "share.decoder.self": "own"})
    assert "encoder.heads" not in next(space.enumerate())
    with pytest.raises(ConfigError) as caught:
        Space.parse(FLAT).with_overrides({"encoder.heads": "2", "encoder.mixer": "lightconv"})
    assert [problem.code for problem in caught.value.problems] == ["unused-key"]
