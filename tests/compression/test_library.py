"""Weights of replacements and of combinations, without a study."""

from pathlib import Path

import pytest
import torch

from scalesearch.compression.alternatives import (
    CHAINS,
    Alternative,
    Parent,
    cost_deltas,
    evaluate_combination,
    list_alternatives,
)
from scalesearch.compression.initialize import fit_outputs, output_error
from scalesearch.compression.library import (
    FitSettings,
    build_layer,
    load_combination,
    measure_combinations,
    record_blocks,
)
from scalesearch.cost import find_protocol
from scalesearch.data import Corpus, DataSpec, load_corpus
from scalesearch.errors import UserError
from scalesearch.nn import build_model
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.spaces import Space
from tests.corpora import write_text
from tests.errors import refuses

SPACE = """
width: 16
norm: pre
encoder: { depth: 3, heads: 2, head_dim: 8, ffn: { relu: { hidden: 12 } } }
decoder: { depth: 2, heads: 2, head_dim: 8, ffn: { geglu: { hidden: 12 } } }
"""
PARENT = Parent.from_architecture(Space.parse(SPACE).single_architecture())


@pytest.mark.parametrize("change", ["qk_norm: head", "alibi: yes"])
def test_parents_whose_heads_are_not_independent_are_refused(change):
    space = Space.parse(SPACE.replace("encoder: {", f"encoder: {{ {change},"))
    with refuses("parent-unsupported", "encoder"):
        Parent.from_architecture(space.single_architecture())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    place = tmp_path_factory.mktemp("data")
    write_text(place)
    return load_corpus(DataSpec(source="en", target="de", train=str(place / "train"),
                                validation=str(place / "val"), test=str(place / "test"), vocab=60),
                       place / "cache")


@pytest.fixture
def model(corpus: Corpus) -> Seq2SeqModel:
    return build_model(PARENT.architecture.block, vocab=corpus.tokenizer.vocab_size).eval()


def score(model: Seq2SeqModel, corpus: Corpus, alternative: Alternative, library: Path,
          steps: int = 0):
    stack = alternative.chain.partition(".")[0]
    result = build_layer(PARENT, model, corpus, stack, alternative.first, [alternative], library,
                         FitSettings(pairs=40, steps=steps), lambda done, total: None)
    return result.scores[0]


@pytest.mark.parametrize("chain", CHAINS)
def test_units_without_effect_are_removed_exactly(chain, model, corpus, tmp_path):
    _, part, last = CHAINS[chain]
    block = model.get_submodule(f"{chain.partition('.')[0]}.layers.1.{part}")
    with torch.no_grad():  # the first half of the units does not change the output
        block.get_submodule(last).weight[:, : block.get_submodule(last).weight.shape[1] // 2] = 0
        block.get_submodule(last).bias.normal_()
    size = PARENT.sizes[chain][1] // 2
    scored = score(model, corpus, Alternative(chain, 1, 1, size), tmp_path)
    assert scored.output_error < 1e-5 and abs(scored.rise) < 1e-4


def test_score_is_the_measured_rise_with_the_stored_weights(model, corpus, tmp_path):
    alternatives = [Alternative("encoder.ffn", 0, 0, 3), Alternative("decoder.cross", 0, 1, 2),
                    Alternative("decoder.self", 1, 1, 0)]
    rises = [score(model, corpus, alternative, tmp_path).rise for alternative in alternatives]
    measured = measure_combinations(PARENT, model, corpus, [[item] for item in alternatives],
                                    tmp_path, lambda done, total: None)
    assert [item.rise for item in measured.combinations] == pytest.approx(rises, abs=1e-6)
    assert all(rises)


def with_rank(weight: torch.Tensor, rank: int) -> torch.Tensor:
    return torch.randn(len(weight), rank) @ torch.randn(rank, weight.shape[1]) / 4


def with_groups(weight: torch.Tensor, groups: int) -> torch.Tensor:
    blocks = [block.chunk(groups, 1)[index] for index, block in enumerate(weight.chunk(groups))]
    return torch.block_diag(*blocks)


def with_products(weight: torch.Tensor, products: int) -> torch.Tensor:
    factors = {(12, 16): ((4, 4), (4, 3)), (16, 12): ((3, 4), (4, 4))}
    return sum(torch.kron(*map(torch.randn, factors[tuple(weight.shape)]))
               for _ in range(products)).T / 4


def with_equal_heads(weight: torch.Tensor, heads: int) -> torch.Tensor:
    return weight[: len(weight) // 2].repeat(2, 1)


STRUCTURED = [("encoder.ffn", "ffn_rank", 3, with_rank),
              ("decoder.ffn", "ffn_rank", 2, with_rank),
              ("encoder.ffn", "ffn_groups", 2, with_groups),
              ("decoder.ffn", "ffn_groups", 4, with_groups),
              ("encoder.ffn", "ffn_products", 2, with_products),
              ("encoder.attention", "key_value_heads", 1, with_equal_heads),
              ("decoder.cross", "cross_key_value_heads", 1, with_equal_heads),
              ("decoder.self", "attention_rank", 2, with_rank),
              ("decoder.cross", "cross_rank", 3, with_rank)]


@pytest.mark.parametrize(("chain", "structure", "size", "weights"), STRUCTURED)
def test_maps_that_have_a_structure_are_replaced_exactly(chain, structure, size, weights, model,
                                                         corpus, tmp_path):
    torch.manual_seed(0)
    stack = chain.partition(".")[0]
    block = model.get_submodule(f"{stack}.layers.1.{CHAINS[chain][1]}")
    names = ("up", "gate", "down", "query", "key", "value")
    if structure.endswith("heads"):
        names = ("key", "value")
    with torch.no_grad():
        for name, part in block.named_children():
            if name in names:
                part.weight.copy_(weights(part.weight, size))
                if "heads" in structure:
                    part.bias.copy_(part.bias[: len(part.bias) // 2].repeat(2))
                else:
                    part.bias.normal_()
    scored = score(model, corpus, Alternative(chain, 1, 1, size, structure), tmp_path)
    assert scored.output_error < 1e-5 and abs(scored.rise) < 1e-4


@pytest.mark.parametrize(("chain", "structure", "size", "weights"), STRUCTURED)
def test_costs_of_structures_add_up(chain, structure, size, weights):
    combination = [Alternative(chain, 1, 1, size, structure), Alternative(chain, 0, 0, 0),
                   Alternative("encoder.ffn" if chain == "decoder.ffn" else "decoder.ffn", 1, 1, 4)]
    names = ["params.total", "macs.total"]
    costs = cost_deltas(PARENT, combination, names, find_protocol("forward", 7, 9, 60))
    expected = [base + sum(costs.deltas[item][cost] for item in combination)
                for cost, base in enumerate(costs.parent)]
    assert list(evaluate_combination(PARENT, combination, names,
                                     find_protocol("forward", 7, 9, 60))) == expected
    assert f"{chain.partition('.')[0]}.{structure}" in PARENT.describe(combination)


@pytest.mark.parametrize(("key", "value", "reason"), [
    ("encoder.ffn_groups", 5, "not multiples of 5"),
    ("encoder.key_value_heads", 3, "not multiples of 3"),
    ("decoder.ffn_rank[2]", 7, "no fewer parameters"),
    ("decoder.attention_rank", 8, "no fewer parameters")])
def test_structures_that_cannot_be_used_are_refused(key, value, reason):
    with pytest.raises(UserError, match=reason):
        list_alternatives(PARENT, {key: [value]})


def test_training_of_a_block_reduces_its_error(model, corpus):
    calls = record_blocks(model, corpus, "encoder", [0], 40)["encoder.layers.0.ffn"]
    fitted = load_combination(PARENT, {}, [Alternative("encoder.ffn", 0, 0, 6)], {},
                              corpus.tokenizer.vocab_size).get_submodule("encoder.layers.0.ffn")
    before = output_error(fitted, calls)
    fit_outputs([fitted], [calls], steps=60, lr=1e-2)
    assert output_error(fitted, calls) < before / 2


def test_layers_after_a_removed_one_keep_their_weights(model, corpus):
    removed = [Alternative("encoder.attention", 0, 0, 0), Alternative("encoder.ffn", 0, 0, 0)]
    smaller = load_combination(PARENT, model.state_dict(), removed, {}, corpus.tokenizer.vocab_size)
    expected = {name.replace(f"layers.{layer}.", f"layers.{layer - 1}."): weight
                for name, weight in model.state_dict().items() for layer in (1, 2)
                if name.startswith(f"encoder.layers.{layer}.")}
    weights = {name: weight for name, weight in smaller.state_dict().items()
               if name.startswith("encoder.layers.")}
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name])
