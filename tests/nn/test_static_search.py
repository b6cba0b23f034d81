"""Searches on fixed shapes: the translations of other searches, and steps that can be captured."""

import copy
from functools import cache
from random import Random

import pytest
import torch

from scalesearch.blocks import mixture
from scalesearch.blocks.core import EOS
from scalesearch.library import find_file
from scalesearch.nn import build_model
from scalesearch.nn.beam_search import BeamSearchState, beam_search
from scalesearch.nn.decode import greedy_search
from scalesearch.nn.static_search import StaticSearch
from scalesearch.spaces import read_space
from scalesearch.spaces.assembly.architecture import ModelSpec, assemble
from tests.architectures import transformer_config
from tests.devices import RecordingRunner
from tests.nn.covering import covering
from tests.nn.test_decode import model, sources

VOCAB = 12
FAMILIES = [f"small/{name}" for name in ("plain", "partialformer", "anthe", "edgeformer")]
FAMILIES += [f"reference/{name}" for name in ("subformer", "evolved", "delight-d128", "mega")]


def sharp_model(block, seed: int = 1):
    """A random model in fp64 whose next token depends on source and prefix."""
    network = build_model(block, vocab=VOCAB, seed=seed, dtype=torch.float64).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in network.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return network


def total_loss(network, source: torch.Tensor, tokens: torch.Tensor) -> float:
    """Negative log-probability of a hypothesis."""
    with torch.no_grad():
        logits = network(source[None], tokens[None])
    return torch.nn.functional.cross_entropy(logits[0], tokens, reduction="sum").item()


def check_equal_translations(network, beam: int, seed: int = 1) -> None:
    """Compare all hypotheses of three batches of two shapes, replayed from recordings."""
    nbest = min(beam, 2)
    with network.cached_weights():
        runner = RecordingRunner("decoding steps", [])
        static = StaticSearch(network, runner, beam, nbest=nbest)
        for number, width in enumerate((6, 11, 5)):
            source = sources(seed + number, 4, width, VOCAB)
            limit = None if number else 7
            actual = static.search(source, limit)
            expected = beam_search(network, source, beam, max_length=limit, nbest=nbest)
            steps = expected.tokens.shape[2]
            assert torch.equal(actual.lengths, expected.lengths)
            differs = (actual.tokens[..., :steps] != expected.tokens).any(-1)
            for row, rank in differs.nonzero().tolist():
                # With a window, two orders of the same cycles of tokens are equally probable.
                length = int(expected.lengths[row, rank])
                losses = [total_loss(network, source[row], tokens[row, rank, :length])
                          for tokens in (actual.tokens, expected.tokens)]
                assert losses[0] == pytest.approx(losses[1], rel=1e-12)
            assert not actual.tokens[..., steps:].any()
            assert torch.allclose(actual.scores, expected.scores, rtol=1e-6)
            if beam == 1:
                assert actual.best_ids() == greedy_search(network, source, limit).best_ids()
    assert runner.notes == []
    assert len(runner.graphs) == 3


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_translations_equal_those_of_beam_search(seed: int, beam: int) -> None:
    check_equal_translations(model(seed, VOCAB), beam, seed)


@pytest.mark.full
@pytest.mark.parametrize("name", FAMILIES)
def test_translations_of_families(name: str) -> None:
    network = sharp_model(read_space(find_file(name, "spaces")).single_architecture().block)
    for beam in (1, 3):
        check_equal_translations(network, beam)


@cache
def random_models() -> list[ModelSpec]:
    return covering(Random(20261127), 16)


@pytest.mark.full
@pytest.mark.parametrize("number", range(16))
def test_translations_of_random_models_of_all_blocks(monkeypatch, number: int) -> None:
    monkeypatch.setattr(mixture, "_has_dynamic_shapes", lambda x: False)  # as on a GPU
    network = sharp_model(random_models()[number].block)
    if StaticSearch.supports(network):
        check_equal_translations(network, 3)


def test_learned_positions_limit_padding() -> None:
    config = transformer_config(embedding__positions="learned", embedding__max_length=13)
    check_equal_translations(sharp_model(assemble(config).block), 2)


def test_decoder_of_another_width() -> None:
    config = transformer_config(decoder__width=12, embedding__tie="decoder")
    check_equal_translations(sharp_model(assemble(config).block), 2)


def test_scores_of_inactive_beams_do_not_matter() -> None:
    """Fixed shapes decode them, too, and their scores may be NaN."""
    source = torch.ones(1, 3, dtype=torch.long)
    state = BeamSearchState(source, 3, 1.0, torch.tensor([5]), 3, EOS, 6)
    scores = torch.full((1, VOCAB), -9.0)
    scores[0, [EOS, 5, 6]] = torch.tensor([-1.0, -1.1, -1.2])
    state.update(scores, torch.zeros(1, 1), state.first())
    assert (state.alive[0] > -torch.inf).tolist() == [False, True, True]  # the best has ended
    expected = copy.deepcopy(state)
    rows = torch.arange(3)
    scores[0, EOS] = -9.0
    expected.update(scores.repeat(2, 1), torch.zeros(2, 1), rows[1:])
    scores = scores.repeat(3, 1)
    scores[0] = torch.nan
    state.update(scores, torch.zeros(3, 1), rows)
    assert torch.equal(state.alive, expected.alive) and (state.alive > -torch.inf).any()
    assert torch.equal(state.scores, expected.scores)
