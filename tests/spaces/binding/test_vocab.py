"""The vocabulary as a key of a space: id, protocol and conflicts."""

import pytest

from scalesearch.cost import evaluate_cost, find_protocol, load_protocol
from scalesearch.nn import build_model
from scalesearch.spaces import Space
from scalesearch.spaces.schema.cost_names import OWN_VOCABULARY
from tests.errors import refuses

PLAIN = """
width: 16
encoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 8 } } }
decoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 8 } } }
"""
EMBEDDINGS = {
    "plain": "",
    "untied": "embedding: { tie: none }\n",
    "factorised": "embedding: { factorised: { rank: 4 } }\n",
    "adaptive": "embedding: { adaptive: { cutoffs: [10, 40] } }\n",
    "adaptive, untied": "embedding: { adaptive: { cutoffs: [10] }, tie: none }\n",
    "chains": "embedding: { tie: none }\ntensor_chain: { embedding: 0.3, output: 0.3 }\n",
}


@pytest.mark.parametrize("kind", EMBEDDINGS)
@pytest.mark.parametrize("vocab", [30, 64])
def test_costs_with_own_vocabulary_equal_the_built_model(kind: str, vocab: int) -> None:
    """They also equal those of the architecture under a protocol with that vocabulary."""
    free = Space.parse(PLAIN + EMBEDDINGS[kind]).single_architecture()
    own = Space.parse(f"{PLAIN}vocab: {vocab}\n{EMBEDDINGS[kind]}").single_architecture()
    breakdown = evaluate_cost(own.block, load_protocol(own.protocol, source=5, target=7))
    expected = evaluate_cost(free.block, find_protocol("forward", 5, 7, vocab))
    assert breakdown.values == expected.values
    model = build_model(own.block, vocab=vocab)
    assert sum(weight.numel() for weight in model.parameters()) == breakdown["params.total"]
    assert {name: weight.shape for name, weight in model.named_parameters()} == {
        name: weight.shape
        for name, weight in build_model(free.block, vocab=vocab).named_parameters()}
    assert own.vocab == vocab and free.vocab is None
    assert own.id != free.id and own.id != Space.parse(
        f"{PLAIN}vocab: 70\n{EMBEDDINGS[kind]}").single_architecture().id


def test_space_with_vocabularies_round_trips() -> None:
    space = Space.parse(f"{PLAIN}vocab: 1k | 2k if width > 8 else 500\n")
    copy = Space.parse(space.to_yaml())
    assert copy == space and copy.hash == space.hash and space.protocol["vocab"] == OWN_VOCABULARY
    configs = list(space.enumerate())
    assert [config["vocab"] for config in configs] == [1000, 2000] and space.n_configurations() == 2
    for config in configs:
        architecture = space.architecture(config)
        closed = Space.parse(architecture.to_yaml()).single_architecture()
        assert (closed.id, closed.vocab) == (architecture.id, config["vocab"])
        assert space.contains(config)
    assert not space.contains(next(Space.parse(f"{PLAIN}vocab: 3k\n").enumerate()))
    assert not space.contains(next(Space.parse(PLAIN).enumerate()))


def test_space_without_vocab_has_no_vocab_parameter() -> None:
    space = Space.parse(f"{PLAIN}cost: {{ protocol: {{ vocab: 100 }} }}\n")
    assert "vocab" not in next(space.enumerate()) and space.protocol["vocab"] == 100
    overridden = space.with_overrides({"vocab": "1k | 2k"})  # replaces that of the protocol
    assert overridden.protocol == {"vocab": OWN_VOCABULARY, "name": "forward"}
    assert overridden.n_configurations() == 2
    assert overridden.with_overrides({"vocab": "500"}).single_architecture().vocab == 500


def test_conflicting_vocabularies_are_rejected() -> None:
    with refuses("given-twice", "cost.protocol", "vocab", place="<string>:6"):
        Space.parse(f"{PLAIN}vocab: 1k\ncost: {{ protocol: {{ vocab: 100 }} }}\n")
    with refuses("bad-value", OWN_VOCABULARY):
        Space.parse(f"{PLAIN}cost: {{ protocol: {{ vocab: own }} }}\n")
    with refuses("bad-value", "vocab"):
        Space.parse(f"{PLAIN}vocab: 3\n")
    with refuses("given-twice", 5000):
        load_protocol(Space.parse(f"{PLAIN}vocab: 1k\n").protocol, vocab=5000)
    with refuses("vocab-missing"):
        find_protocol(vocab=OWN_VOCABULARY).with_vocab(None)
    with refuses("vocab-missing"):
        evaluate_cost(Space.parse(PLAIN).single_architecture().block,
                      find_protocol(vocab=OWN_VOCABULARY))
