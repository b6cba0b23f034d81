"""Self-attentive embeddings: counts, causality, cache and unbuildable configurations."""

from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.spaces import Space
from scalesearch.testing import check_count, check_model
from tests.errors import refuses

TEXT = """
width: {width}
norm: {norm}
model: {model}
embedding:
  {{ tie: {tie}, positions: {positions}, max_length: 64,
     attentive: {{ rank: {rank}, heads: {heads} }} }}
encoder: {{ depth: 1 | 2, heads: 2, head_dim: 4, ffn: {{ relu: {{ hidden: 8 }} }} }}
decoder: {{ depth: 1, heads: 2, head_dim: 4, ffn: {{ relu: {{ hidden: 8 }} }} }}
"""
DEFAULTS = {"width": "8", "norm": "pre", "model": "encoder-decoder", "tie": "all",
            "positions": "sinusoidal", "rank": "4", "heads": "2"}


def space(**changes):
    return Space.parse(TEXT.format(**DEFAULTS | changes))


def first_architecture(**changes):
    """The architecture with the first value of each parameter."""
    parsed = space(**changes)
    return parsed.architecture(parsed.resolve(lambda name, parameter: parameter.values()[0]))


def test_count_equals_enumeration():
    check_count(space(width="8 | 16", norm="pre | post", tie="none | all", rank="3..8",
                      heads="1 | 2 | 3"))


def test_models_are_causal_for_all_norms_and_positions():
    for seed, (norm, tie,
               positions) in enumerate([("pre", "none", "learned"), ("post", "all", "none")]):
        check_model(first_architecture(norm=norm, tie=tie, positions=positions), seed)


def test_cache_includes_keys_and_values_of_the_embedding():
    def cache_bytes(target, embedding="attentive: { rank: 6, heads: 2 }"):
        text = TEXT.format(**DEFAULTS).replace("attentive: { rank: 4, heads: 2 }", embedding)
        parsed = Space.parse(text)
        block = parsed.architecture(
            parsed.resolve(lambda name, parameter: parameter.values()[0])).block
        return evaluate_cost(block, find_protocol("decode", 5, target, 20))["memory.cache"]

    def cache_per_token(embedding):
        return cache_bytes(7, embedding) - cache_bytes(6, embedding)

    numbers = (cache_per_token("attentive: { rank: 6, heads: 2 }")
               - cache_per_token("plain: {}")) / (cache_per_token("plain: {}") / 16)
    assert numbers == 2 * 6  # a decoder layer caches 2 · 8 numbers per token


def test_unbuildable_configurations_report_their_key():
    with refuses("unbuildable", 4, 6, key="embedding.attentive.heads"):
        first_architecture(rank="6", heads="4")
    with refuses("unbuildable", key="embedding"):
        first_architecture(model="decoder-only")
