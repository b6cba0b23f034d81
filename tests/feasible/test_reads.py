"""What a section depends on is what building it reads: nothing of it is listed by hand."""

import pytest

from scalesearch.feasible import decomposition
from scalesearch.feasible.pieces import TracingConfig, UndeclaredReadError
from scalesearch.space import Space
from scalesearch.space.assembly.architecture import build_section
from scalesearch.testing import check_count

TANGLED = """
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


@pytest.mark.parametrize("samples", [0, 60])
def test_what_no_sample_shows_is_found_while_listing(
        samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decomposition, "N_TRACE_SAMPLES", samples)
    check_count(Space.parse(TANGLED))


@pytest.mark.parametrize(
    "more", ["relative_clip: 2 | 3 if heads == 2 else 4 | 5 | 6", "relative_positions: yes"])
def test_answers_that_nothing_is_made_from_count_as_sheets(more: str) -> None:
    """A clip that no relative position uses comes up by the number of heads, which only the encoder asks."""
    check_count(Space.parse(f"width: 16\nencoder:\n  depth: 1\n  heads: 2 | 4\n  {more}\n"))


def test_an_answer_that_was_not_given_is_missed_and_not_taken_for_absent() -> None:
    space = Space.parse(TANGLED)
    answers = next(space.enumerate())
    every = set(answers)
    build_section(TracingConfig(answers, every, space.parameter_space.nodes_by_key, "all"),
                  "encoder")
    with pytest.raises(UndeclaredReadError) as caught:
        build_section(TracingConfig(answers, every - {"encoder.gate"},
                                    space.parameter_space.nodes_by_key, "one less"), "encoder")
    assert caught.value.key == "encoder.gate"
    with pytest.raises(TypeError):
        dict(TracingConfig(answers, every, space.parameter_space.nodes_by_key, "all"))
