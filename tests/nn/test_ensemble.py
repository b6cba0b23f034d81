"""Ensembles search with the mean of their members' probabilities."""

import itertools

import pytest
import torch

from scalesearch.blocks.core import BOS, EOS
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import greedy_search
from scalesearch.nn.ensemble import Ensemble
from tests.nn.test_decode import model, sources


def log_probability(members: list, source: torch.Tensor, tokens: list[int]) -> float:
    """Log probability of ``tokens`` and EOS under the mean of the members' probabilities."""
    with torch.no_grad():
        target = torch.tensor([[BOS, *tokens]])
        probabilities = [member(source[None], target)[0].softmax(-1) for member in members]
    mean = torch.stack(probabilities).mean(0).log()
    return sum(float(mean[i, token]) for i, token in enumerate([*tokens, EOS]))


@pytest.mark.parametrize("seeds", [(1, 2), (1, 2, 4), (0, 1)], ids=["two", "three", "mixed"])
def test_wide_beam_equals_exhaustive_search_of_the_mean(seeds: tuple[int, ...]) -> None:
    members = [model(seed) for seed in seeds]
    source = sources(seeds[-1], 3)
    length = 3
    all_outputs = [list(tokens) for n in range(length + 1)
                   for tokens in itertools.product([4, 5], repeat=n)]
    hypotheses = beam_search(Ensemble(members), source, beam=len(all_outputs), max_length=length,
                             nbest=3)
    for row, sentence in enumerate(source):
        sentence = sentence[sentence != 0]
        expected = sorted((log_probability(members, sentence, tokens) / (len(tokens) + 1)
                           for tokens in all_outputs), reverse=True)
        assert hypotheses.scores[row].tolist() == pytest.approx(expected[:3], abs=1e-6)


@pytest.mark.parametrize("beam", [1, 3])
def test_ensemble_of_equal_models_equals_the_model(beam: int) -> None:
    member = model(1, vocab=12)
    source = sources(5, 9, vocab=12)
    single, doubled = (greedy_search(searched, source) if beam == 1
                       else beam_search(searched, source, beam=beam)
                       for searched in (member, Ensemble([member, member])))
    assert single.best_ids() == doubled.best_ids()
    assert torch.allclose(single.scores.double(), doubled.scores.double(), atol=1e-6)


def test_members_differ_from_their_ensemble() -> None:
    members = [model(1, vocab=12), model(2, vocab=12)]
    source = sources(3, 20, vocab=12)
    combined = greedy_search(Ensemble(members), source).best_ids()
    assert all(greedy_search(member, source).best_ids() != combined for member in members)
