"""The vocabulary as a key of a space: its identity, its protocol, and what contradicts it."""

import pytest

from scalesearch.cost import evaluate_cost, find_protocol, load_protocol
from scalesearch.nn import build_model
from scalesearch.space import Space
from scalesearch.space.schema.cost_names import OWN_VOCABULARY
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
def test_an_own_vocabulary_costs_what_the_built_model_has(kind: str, vocab: int) -> None:
    """And what the same architecture costs under a protocol of that vocabulary."""
    free = Space.parse(PLAIN + EMBEDDINGS[kind]).single_architecture()
    own = Space.parse(f"{PLAIN}vocab: {vocab}\n{EMBEDDINGS[kind]}").single_architecture()
    bill = evaluate_cost(own.block, load_protocol(own.protocol, source=5, target=7))
    assert bill.values == evaluate_cost(free.block, find_protocol("forward", 5, 7, vocab)).values
    model = build_model(own.block, vocab=vocab)
    assert sum(weight.numel() for weight in model.parameters()) == bill["params.total"]
    assert {name: weight.shape for name, weight in model.named_parameters()} == {
        name: weight.shape
        for name, weight in build_model(free.block, vocab=vocab).named_parameters()}
    assert own.vocab == vocab and free.vocab is None
    assert own.id != free.id and own.id != Space.parse(
        f"{PLAIN}vocab: 70\n{EMBEDDINGS[kind]}").single_architecture().id


def test_a_space_of_vocabularies_reads_back_and_its_candidates_too() -> None:
    space = Space.parse(f"{PLAIN}vocab: 1k | 2k if width > 8 else 500\n")
    again = Space.parse(space.to_yaml())
    assert again == space and again.hash == space.hash and space.protocol["vocab"] == OWN_VOCABULARY
    sheets = list(space.enumerate())
    assert [sheet["vocab"] for sheet in sheets] == [1000, 2000] and space.n_configurations() == 2
    for sheet in sheets:
        architecture = space.architecture(sheet)
        closed = Space.parse(architecture.to_yaml()).single_architecture()
        assert (closed.id, closed.vocab) == (architecture.id, sheet["vocab"])
        assert space.contains(sheet)
    assert not space.contains(next(Space.parse(f"{PLAIN}vocab: 3k\n").enumerate()))
    assert not space.contains(next(Space.parse(PLAIN).enumerate()))


def test_a_space_without_the_key_has_no_such_answer() -> None:
    space = Space.parse(f"{PLAIN}cost: {{ protocol: {{ vocab: 100 }} }}\n")
    assert "vocab" not in next(space.enumerate()) and space.protocol["vocab"] == 100
    given = space.with_overrides({"vocab": "1k | 2k"})  # which takes the place of the protocol's
    assert given.protocol == {"vocab": OWN_VOCABULARY,
                              "name": "forward"} and given.n_configurations() == 2
    assert given.with_overrides({"vocab": "500"}).single_architecture().vocab == 500


def test_two_vocabularies_contradict_each_other() -> None:
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
