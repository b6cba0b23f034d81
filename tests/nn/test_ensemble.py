"""Ensembles search as a single model would that gave the mean of their probabilities."""

import itertools

import pytest
import torch

from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import BOS, EOS, greedy_search
from scalesearch.nn.ensemble import Ensemble
from tests.nn.test_decode import model, sources


def log_probability(members: list, source: torch.Tensor, said: list[int]) -> float:
    """Logarithm of the product, over ``said`` and EOS, of the mean of the members' probabilities."""
    with torch.no_grad():
        each = [made(source[None], torch.tensor([[BOS, *said]]))[0].softmax(-1) for made in members]
    mean = torch.stack(each).mean(0).log()
    return sum(float(mean[i, token]) for i, token in enumerate([*said, EOS]))


@pytest.mark.parametrize("seeds", [(1, 2), (1, 2, 4), (0, 1)], ids=["two", "three", "of two kinds"])
def test_a_wide_beam_is_an_exhaustive_search_of_the_mean(seeds: tuple[int, ...]) -> None:
    members = [model(seed) for seed in seeds]
    source = sources(seeds[-1], 3)
    length = 3
    every = [list(said) for n in range(length + 1)
             for said in itertools.product([1, 4, 5], repeat=n)]
    found = beam_search(Ensemble(members), source, beam=len(every), max_length=length, nbest=3)
    for row, sentence in enumerate(source):
        sentence = sentence[sentence != 0]
        wanted = sorted((log_probability(members, sentence, said) / (len(said) + 1)
                         for said in every), reverse=True)
        assert found.scores[row].tolist() == pytest.approx(wanted[:3], abs=1e-6)


@pytest.mark.parametrize("beam", [1, 3])
def test_twice_the_same_model_says_what_it_says_alone(beam: int) -> None:
    made = model(1, vocab=12)
    source = sources(5, 9, vocab=12)
    alone, twice = (greedy_search(some, source) if beam == 1
                    else beam_search(some, source, beam=beam)
                    for some in (made, Ensemble([made, made])))
    assert alone.best_ids() == twice.best_ids()
    assert torch.allclose(alone.scores.double(), twice.scores.double(), atol=1e-6)


def test_members_differ_from_their_ensemble() -> None:
    members = [model(1, vocab=12), model(2, vocab=12)]
    source = sources(3, 20, vocab=12)
    together = greedy_search(Ensemble(members), source).best_ids()
    assert all(greedy_search(made, source).best_ids() != together for made in members)
