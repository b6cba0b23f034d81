"""Counts of spaces that combine blocks of other published architectures."""

import pytest

from scalesearch.spaces import Space
from scalesearch.testing import check_count

SPACES = {
    "convolutions and structured matrices": """
width: 8 | 12
encoder:
  depth: 1 | 2
  heads: 2
  ffn: { relu: { hidden: 8 } }
  mixer:
    one of:
      attention: {}
      lightweight: { kernel: 3 | 5, heads: 2, glu: yes | no }
      separable: { kernel: 3 }
decoder:
  depth: 1
  heads: 2
  ffn: { relu: { hidden: 8 | 12 } }
  local:
    one of:
      none: {}
      dynamic: { kernel: 3, heads: 2, join: split | sum, channels: = width // 2 }
matrices:
  attention: dense | kronecker(1..2) | group(2)
  ffn: dense | low_rank(2 | 3) | phm(2)
  embedding: dense | kronecker(2)
""",
    "Evolved's sub-layers, orders and norms": """
width: 6 | 8
norm: pre | post
norm_kind: layer | rms
encoder:
  depth: 1 | 2
  heads: 2
  sublayers: [glu, attention, ffn]
  ffn: { relu: { hidden: 8 } }
  ffn_norm: yes | no
  projection_bias: yes | no
decoder:
  depth: 2
  heads: 2
  parallel_heads: off | 1
  sublayers: [[self, branches], cross, ffn]
  branches: { left: dense | separable, left_kernel: 3 | 5, right: convolution, kernel: 3 }
  ffn: { swish: { hidden: 8 } }
share: { encoder: { glu: own | one }, decoder: { branches: own | one, self: own | one } }
""",
    "paths, masks, Mega and lifts": """
width: 8 | 16
encoder:
  depth: 2
  heads: 2
  mask: none | dynamic
  lift: { one of: { none: {}, dextra: { depth: 2, groups: 2 } } }
  paths: { of: attention | ffn, count: 1 | 2, merge: mean | weighted, norm: yes | no }
  ffn: { relu: { hidden: 8 } }
decoder:
  depth: 1 | 2
  mixer: { one of: { attention: {}, mega: { dims: 2, head_dim: 4, value_dim: 8 } } }
  heads: 2
  cross: { one of: { attention: {}, gated: { head_dim: 4 } } }
  ffn: { relu: { hidden: 8 } }
""",
    "waists, narrow tables and sizes by layer": """
width: 8 | 12
norm: pre | post
embedding:
  tie: all
  one of: { plain: {}, attentive: { rank: 4, heads: 1 | 2 }, dextra: { rank: 4, groups: 2 } }
encoder:
  depth: 3 | 4
  middle_width: off | 6 | 16
  heads: 2
  head_dim: 4
  ffn: { relu: { hidden: 8 | 16 } }
decoder:
  depth: 3
  middle_width: off | 16
  heads: 2 | [2, 3, 2]
  head_dim: 4
  ffn: { relu: { hidden: 8 } }
share: { encoder: { attention: own | sandwich }, decoder: { cross: own | sandwich } }
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_count_equals_enumeration(name: str) -> None:
    check_count(Space.parse(SPACES[name]))


@pytest.mark.parametrize("model", ["encoder-only", "decoder-only",
                                   "encoder-only | encoder-decoder"])
@pytest.mark.parametrize("keys", ["width: 8\ndecoder: { width: 8 | 12 }",
                                  "width: 8 | 12\nvocab: 30\ntarget_vocab: 40",
                                  "width: 8 | 12\nclasses: 3"])
def test_keys_of_other_models_are_counted_as_the_model_reads_them(model: str, keys: str) -> None:
    check_count(Space.parse(f"model: {model}\n{keys}\n"))
