"""Self-attentive embeddings: their part in counts, what they cannot be, and their own keys and values in decoding."""

from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.space import Space
from scalesearch.testing import check_count, check_model
from tests.errors import refuses

TEXT = """
width: {width}
norm: {norm}
model: {model}
embedding: {{ tie: {tie}, positions: {positions}, max_length: 64, attentive: {{ rank: {rank}, heads: {heads} }} }}
encoder: {{ depth: 1 | 2, heads: 2, head_dim: 4, ffn: {{ relu: {{ hidden: 8 }} }} }}
decoder: {{ depth: 1, heads: 2, head_dim: 4, ffn: {{ relu: {{ hidden: 8 }} }} }}
"""
USUAL = {"width": "8", "norm": "pre", "model": "encoder-decoder", "tie": "all",
         "positions": "sinusoidal", "rank": "4", "heads": "2"}


def space(**changes):
    return Space.parse(TEXT.format(**USUAL | changes))


def first(**changes):
    """The architecture of the first answers."""
    found = space(**changes)
    return found.architecture(found.resolve(lambda name, parameter: parameter.values()[0]))


def test_counts_are_those_of_listing():
    check_count(space(width="8 | 16", norm="pre | post", tie="none | all", rank="3..8",
                      heads="1 | 2 | 3"))


def test_it_is_one_causal_function_whatever_its_norms_and_positions():
    for seed, (norm, tie,
               positions) in enumerate([("pre", "none", "learned"), ("post", "all", "none")]):
        check_model(first(norm=norm, tie=tie, positions=positions), seed)


def test_decoding_keeps_keys_and_values_of_its_own():
    def kept(target, embedding="attentive: { rank: 6, heads: 2 }"):
        text = TEXT.format(**USUAL).replace("attentive: { rank: 4, heads: 2 }", embedding)
        found = Space.parse(text)
        block = found.architecture(
            found.resolve(lambda name, parameter: parameter.values()[0])).block
        return evaluate_cost(block, find_protocol("decode", 5, target, 20))["memory.cache"]

    def each(embedding):
        return kept(7, embedding) - kept(6, embedding)

    numbers = (each("attentive: { rank: 6, heads: 2 }")
               - each("plain: {}")) / (each("plain: {}") / 16)
    assert numbers == 2 * 6  # a layer of the decoder keeps 2 · 8


def test_what_cannot_be_is_refused_by_its_key():
    with refuses("unbuildable", 4, 6, key="embedding.heads"):
        first(rank="6", heads="4")
    with refuses("unbuildable", key="embedding"):
        first(model="decoder-only")
