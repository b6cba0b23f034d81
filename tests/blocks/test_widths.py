"""Decoders with another width than the encoder: counts, caches, causality and defaults."""

from random import Random

import pytest

from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.spaces import Space
from scalesearch.testing import check_count, check_model
from scalesearch.testing.random_models import random_architecture, small_space

TEXT = """
width: {width}
embedding: {{ tie: decoder }}
encoder: {{ depth: 2, heads: 2, ffn: {{ relu: {{ hidden: = 2 * width }} }} }}
decoder: {{ depth: 1, width: {decoder}, heads: 2, ffn: {{ relu: {{ hidden: = 2 * width }} }} }}
"""


def space(width="16", decoder="8"):
    return Space.parse(TEXT.format(width=width, decoder=decoder))


def test_count_equals_enumeration():
    check_count(space("8 | 16", "= width | 8 | 12"))


@pytest.mark.parametrize("seed", range(12))
def test_random_models_have_exact_costs_and_are_causal(seed):
    spaces = small_space(width="8 | 16", decoder__width="4 | 12 | 24",
                         embedding__tie="none | decoder")
    check_model(random_architecture(Random(seed), spaces, model="encoder-decoder"), seed)


def test_width_of_the_decoder_scales_its_defaults():
    config = space().single_architecture().config
    assert [config[f"{stack}.{key}"] for stack in ("encoder", "decoder")
            for key in ("head_dim", "ffn.hidden")] == [8, 32, 4, 16]


def test_only_keys_and_values_read_the_width_of_the_encoder():
    costs = {decoder: evaluate_cost(space(decoder=decoder).single_architecture().block,
                                    find_protocol("forward", 5, 5, 100))
             for decoder in ("16", "8")}
    # attention 4 d², cross-attention 2 d² + 2 · 16 d, FFN 4 d²; biases 8 d + 3 d, norms 8 d
    expected = {d: 10 * d * d + 2 * 16 * d + 19 * d for d in (16, 8)}
    assert {int(d): cost["params.decoder"] for d, cost in costs.items()} == expected
    assert costs["16"]["params.encoder"] == costs["8"]["params.encoder"]
    assert costs["8"]["params.embedding"] == 100 * (16 + 8)


def test_equal_width_is_the_same_architecture():
    same = space("16", "16").single_architecture()
    assert same == space("16", "= width").single_architecture()
    assert "decoder.width" not in same.config
