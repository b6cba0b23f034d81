"""Dependencies of sections, traced from the keys that building them reads."""

import pytest

from scalesearch.feasible import decomposition
from scalesearch.feasible.pieces import TracedConfig
from scalesearch.spaces import Space, UnbuildableError
from scalesearch.spaces.assembly.architecture import build_section
from scalesearch.testing import check_count

DEPENDENT = """
width: 16 | 32
encoder:
  depth: 2
  heads: 2 | 4
  gate: none | QgV if heads == 4 else none
  relative_clip: 2 | 3 if gate == none else 5
  ffn: { one of: { relu: { hidden: 8 | 16 }, none: {} } }
  step_embedding: no | yes if ffn == none else no
decoder:
  depth: 1
  heads: = encoder.heads
  cross_gate: none | KgQ if encoder.depth == 2 else none
  ffn: { geglu: { hidden: = 4 * encoder.heads } }
share:
  encoder.attention: own | one
  decoder.self: own | encoder.attention[1]
  norms: own | follow if encoder.attention == one else own
tensor_chain: { ffn: off | 0.3 }
"""


@pytest.mark.full
@pytest.mark.parametrize("samples", [0, 60])
def test_dependencies_missed_by_samples_are_found_in_enumeration(
        samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decomposition, "N_TRACE_SAMPLES", samples)
    check_count(Space.parse(DEPENDENT))


@pytest.mark.parametrize(
    "more", ["relative_clip: 2 | 3 if heads == 2 else 4 | 5 | 6", "relative_positions: yes"])
def test_unused_values_count_as_configurations(more: str) -> None:
    """The unused clip depends on the number of heads, which only the encoder reads."""
    check_count(Space.parse(f"width: 16\nencoder:\n  depth: 1\n  heads: 2 | 4\n  {more}\n"))


def test_reads_of_unknown_keys_are_recorded() -> None:
    space = Space.parse(DEPENDENT)
    config = next(space.enumerate())
    space_keys = space.parameter_space.nodes_by_key
    keys_read: set[str] = set()
    build_section(TracedConfig(config, space_keys, space_keys, keys_read), "encoder")
    assert "encoder.gate" in keys_read and "decoder.depth" not in keys_read
    unknown: set[str] = set()
    with pytest.raises(UnbuildableError) as caught:
        build_section(TracedConfig(config, set(config) - {"encoder.gate"}, space_keys, unknown),
                      "encoder")
    assert caught.value.key == "encoder.gate" and "encoder.gate" in unknown
    with pytest.raises(TypeError):
        dict(TracedConfig(config, space_keys, space_keys, keys_read))
