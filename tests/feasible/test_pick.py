"""One candidate of a space: random, smallest or largest."""

from dataclasses import replace

import pytest

from scalesearch.cost import find_protocol
from scalesearch.feasible.pick import pick_candidate
from scalesearch.spaces import read_space
from tests.errors import refuses

CLASSIFIER = """\
space: classifier
model: encoder-only
classes: 3
width: 16 | 32
encoder: { depth: 1, heads: 2 }
"""
ENCODER_DECODER = """\
space: seq2seq
width: 16 | 32
encoder: { depth: 1, heads: 2 }
decoder: { depth: 1, heads: 2 }
"""


@pytest.mark.parametrize("text, reason", [
    (CLASSIFIER, "protocol.artifact"), (f"{ENCODER_DECODER}where: [params.total <= 1]\n", "")])
def test_space_without_valid_candidate_is_refused_with_a_reason(tmp_path, text, reason):
    (tmp_path / "space.yaml").write_text(text)
    protocol = replace(find_protocol("forward", 8, 8, 200), artifact="onnx-int8")
    with refuses("no-valid-candidate", reason) as error:
        pick_candidate(read_space(tmp_path / "space.yaml"), "random", 0, protocol)
    assert ("cannot be built" in str(error.value)) is bool(reason)
