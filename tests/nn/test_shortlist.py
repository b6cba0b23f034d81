"""Decoding with a lexical shortlist."""

import numpy as np
import pytest
import torch

from scalesearch.blocks.core import EOS, PAD
from scalesearch.nn import build_model
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import greedy_search
from scalesearch.nn.shortlist import Shortlist, ShortlistModel
from scalesearch.spaces.assembly.architecture import assemble
from tests.architectures import transformer_config
from tests.errors import refuses
from tests.nn.test_decode import model, sources

VOCAB = 12


def test_tokens_that_occur_together_are_preferred() -> None:
    """Tokens 4 and 8, and 5 and 10, occur in the same pairs; 9 occurs in all pairs."""
    pairs = [([4], [8, 9]), ([4, 5], [8, 9, 10]), ([5], [10, 9]), ([6], [9])]
    shortlist = Shortlist.from_pairs([(np.array(s), np.array(t)) for s, t in pairs], VOCAB, 1, 1)
    assert shortlist.by_source[[4, 5, 6]].tolist() == [[8], [10], [9]]
    assert shortlist.frequent.tolist() == [EOS, 9]
    allowed = shortlist.allowed(torch.tensor([[4, PAD], [4, 5]]))
    assert [row.nonzero()[:, 0].tolist() for row in allowed] == [[EOS, 8, 9], [EOS, 8, 9, 10]]


def full_shortlist() -> Shortlist:
    return Shortlist(torch.full((VOCAB, 1), EOS), torch.arange(VOCAB))


@pytest.mark.parametrize(("beam", "seed"), [(1, 1), (3, 2), (3, 3)])
def test_a_list_of_all_tokens_changes_no_translation(beam: int, seed: int) -> None:
    network = model(seed, VOCAB)
    limited = ShortlistModel(network, full_shortlist())
    source = sources(1, 5, 7, VOCAB)
    expected = beam_search(network, source, beam)
    actual = beam_search(limited, source, beam)
    assert torch.equal(actual.tokens, expected.tokens)
    assert torch.allclose(actual.scores, expected.scores)


def few_tokens() -> Shortlist:
    generator = torch.Generator().manual_seed(2)
    by_source = torch.randint(4, VOCAB, (VOCAB, 2), generator=generator)
    return Shortlist(by_source, torch.tensor([EOS]))


@pytest.mark.parametrize(("beam", "seed"), [(1, 1), (3, 2), (3, 3)])
def test_translations_contain_tokens_of_their_own_list(beam: int, seed: int) -> None:
    """Each sentence alone has the same translation as in a batch."""
    limited = ShortlistModel(model(seed, VOCAB), few_tokens())
    source = sources(1, 5, 7, VOCAB)
    allowed = few_tokens().allowed(source)

    def search(rows: torch.Tensor) -> torch.Tensor:
        hypotheses = (greedy_search(limited, rows) if beam == 1
                      else beam_search(limited, rows, beam))
        return hypotheses.tokens[:, 0]

    tokens = search(source)
    assert any(row.any() for row in tokens)
    for row, (ids, permitted) in enumerate(zip(tokens, allowed)):
        kept = ids[ids != PAD]
        assert permitted[kept].all()
        alone = search(source[row : row + 1])[0]
        assert torch.equal(alone[alone != PAD], kept)


def test_output_without_a_row_per_token_is_refused() -> None:
    network = build_model(assemble(transformer_config(
        embedding="adaptive", embedding__cutoffs=[6], embedding__factor=2)).block, vocab=VOCAB)
    with refuses("shortlist-output", "AdaptiveOutput"):
        ShortlistModel(network, full_shortlist())
