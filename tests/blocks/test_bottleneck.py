"""Bottleneck stacks: counts, sharing, causality and unbuildable configurations."""

import pytest

from scalesearch.blocks.core import Tie
from scalesearch.blocks.weight_sharing import FullSharing
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.spaces import Space
from scalesearch.testing import check_count, check_model
from tests.errors import refuses

TEXT = """
width: {width}
norm: {norm}
model: {model}
encoder: {{ depth: 2, heads: 2, head_dim: 4, ffn: {{ relu: {{ hidden: 8 }} }} }}
decoder:
  {{ depth: {depth}, middle_width: {middle}, heads: {heads}, head_dim: 4,
     ffn: {{ relu: {{ hidden: 8 }} }} }}
share: {{ decoder: {{ self: {own}, cross: {cross}, ffn: {own} }}, norms: {norms} }}
"""
DEFAULTS = {"width": "8", "norm": "pre", "model": "encoder-decoder", "depth": "4", "middle": "12",
            "heads": "2", "own": "sandwich", "cross": "sandwich", "norms": "own"}


def space(**changes):
    return Space.parse(TEXT.format(**DEFAULTS | changes))


def decoder(**changes):
    return space(**changes).single_architecture().block.decoder


@pytest.mark.full
def test_count_equals_enumeration():
    check_count(space(width="8 | 16", middle="off | 4 | 12", depth="3..5", norms="own | follow",
                      own="own | sandwich", cross="own | sandwich", heads="1 | 2"))


@pytest.mark.full
@pytest.mark.parametrize("changes",
                         [{}, {"norm": "post", "cross": "own"}, {"heads": "[2, 3, 3, 1]"},
                          {"model": "decoder-only"}])
def test_models_are_causal(changes):
    check_model(space(**changes).single_architecture(), 1)


def test_cross_attention_of_the_middle_has_the_width_of_the_memory():
    middle = decoder(heads="[2, 3, 3, 2]").middle.layer
    assert (middle.mixer.d, middle.mixer.heads) == (12, 3)
    assert middle.cross_attention.main == decoder().first.layer.cross_attention


def test_cache_per_source_token_equals_that_without_a_bottleneck():
    def cache_per_source_token(middle):
        cache_bytes = [evaluate_cost(space(middle=middle).single_architecture().block,
                                     find_protocol("decode", lengths, 7, 20))["memory.cache"]
                       for lengths in (5, 6)]
        return cache_bytes[1] - cache_bytes[0]

    assert cache_per_source_token("12") == cache_per_source_token("off") > 0


def test_ties_of_the_middle_layers():
    ties = {tie.part: tie for tie in decoder(own="own").middle.ties}
    assert ties == {"cross_attention": Tie("cross_attention", FullSharing())}
    assert "ffn_norm" in {tie.part for tie in decoder(norms="follow").middle.ties}


def test_unbuildable_configurations_report_their_key():
    with refuses("unbuildable", 3, 2, key="decoder.middle_width"):
        space(depth="2").single_architecture()
    with refuses("unbuildable", key="decoder.heads"):
        space(heads="[2, 3, 2, 2]").single_architecture()
    with refuses("unbuildable", key="decoder.middle_width"):
        space(own="cycle(2)").single_architecture()
