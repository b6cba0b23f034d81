"""Keys of mixers: those of attention next to `mixer` or inside it, others only inside."""

import pytest

from scalesearch.blocks.mixers import MIXERS
from scalesearch.spaces import ConfigError, Space
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


def test_attention_keys_are_equal_next_to_the_mixer_and_inside() -> None:
    assert Space.parse(NESTED).to_yaml() == Space.parse(FLAT).to_yaml()


@pytest.mark.parametrize(("key", "value"),
                         [("encoder.mixer.attention.heads", "8"), ("share.encoder.mixing", "one")])
def test_both_spellings_can_be_overridden(key: str, value: str) -> None:
    own = {"encoder.mixer.attention.heads": "encoder.heads",
           "share.encoder.mixing": "share.encoder.attention"}[key]
    for text in (FLAT, NESTED):
        assert Space.parse(text).with_overrides({key: value}) == Space.parse(FLAT).with_overrides(
            {own: value})


def test_both_spellings_are_names_in_expressions() -> None:
    more = "where:\n  - {} != 8 or {} == one\n"
    first = Space.parse(FLAT + more.format("encoder.heads", "share.encoder.attention"))
    assert Space.parse(
        FLAT + more.format("encoder.mixer.attention.heads", "share.encoder.mixing")) == first


@pytest.mark.parametrize("lines", ["encoder: { heads: 2, mixer: { attention: { heads: 4 } } }",
                                   "share: { encoder: { mixing: one, attention: one } }"])
def test_both_spellings_in_one_file_are_rejected(lines: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Space.parse(f"width: 16\n{lines}\n")
    assert [problem.position.line for problem in caught.value.problems] == [1]


def test_mixer_keys_exist_only_with_their_mixer(lightconv: None) -> None:
    for config in Space.parse(MIXED).enumerate():
        attention = config["encoder.mixer"] == "attention"
        kernel = "encoder.mixer.kernel" in config
        assert attention != kernel
        assert {name: f"encoder.{name}" in config
                for name in ("heads", "pg", "gate")} == dict.fromkeys(
            ("heads", "pg", "gate"), attention)
        assert "decoder.heads" in config  # those of cross-attention
        assert ("decoder.gate" in config) == (config["decoder.mixer"] == "attention")


def test_configurations_are_counted_without_enumeration(lightconv: None) -> None:
    space = Space.parse(MIXED)
    configs = list(space.enumerate())
    assert space.n_configurations() == len(configs) == len(set(configs)) == 2 * (
        3 * 2 + 2) * 2 * (2 + 1)
    assert len({space.architecture(config).id
                for config in configs if not space.violated_constraints(config)}) > len(configs) / 2


def test_architecture_with_another_mixer_round_trips(lightconv: None) -> None:
    space = Space.parse(MIXED)
    for config in list(space.enumerate())[::7]:
        if not space.violated_constraints(config):
            network = space.architecture(config)
            assert Space.parse(network.to_yaml()).single_architecture().id == network.id


@pytest.mark.parametrize(("lines", "places"), [
    ("encoder:\n  depth: 1\n  heads: 2\n  mixer: lightconv\n  pg: relu\n", [3, 5]),
    ("encoder.mixer: { lightconv: { kernel: 3 } }\nencoder.gate: QgV\n", [2]),
    # cross-attention has heads as well
    ("decoder: { mixer: lightconv, heads: 2,\n  gate: QgV }\n", [2]),
    ("encoder: { mixer: attention | lightconv, heads: 2 }\n", []),
    ("encoder: { mixer: = attention if width > 8 else lightconv, heads: 2 }\n", []),
])
def test_attention_keys_without_attention_are_rejected(
        lightconv: None, lines: str, places: list[int]) -> None:
    text = f"width: 16\n{lines}"
    if not places:
        Space.parse(text)
        return
    with pytest.raises(ConfigError) as caught:
        Space.parse(text)
    assert [(problem.code, problem.position.line) for problem in caught.value.problems] == [
        ("unused-key", line) for line in places]


def test_overriding_the_mixer_removes_attention_keys(lightconv: None) -> None:
    space = Space.parse(FLAT).with_overrides(
        {"encoder.mixer": "lightconv", "share.encoder.attention": "own",
         "share.decoder.self": "own"})
    assert "encoder.heads" not in next(space.enumerate())
    with pytest.raises(ConfigError) as caught:
        Space.parse(FLAT).with_overrides({"encoder.heads": "2", "encoder.mixer": "lightconv"})
    assert [problem.code for problem in caught.value.problems] == ["unused-key"]


def test_attention_keys_in_an_override_of_the_mixer_replace_those_of_the_file() -> None:
    space = Space.parse(FLAT).with_overrides({"encoder.mixer": "{ attention: { heads: 8 } }"})
    assert {values["encoder.heads"] for values in space.enumerate()} == {8}
