"""Greedy and beam search against exhaustive search, against each other, and against what shares the batch."""

import itertools
from random import Random

import pytest
import torch

from scalesearch.nn import build_model, module
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import (
    BOS,
    EOS,
    Hypotheses,
    blockwise_topk,
    default_max_lengths,
    greedy_search,
    log_partition,
)
from scalesearch.space.assembly.architecture import assemble
from tests.architectures import transformer_config

V = 6  # PAD, UNK, BOS, EOS and two words


def model(seed: int, vocab: int = V, sharpness: float = 3.0):
    """A random model whose next token depends clearly on source and prefix."""
    kind = "decoder-only" if seed % 3 == 0 else "encoder-decoder"
    architecture = assemble(transformer_config(model=kind, encoder__depth=1, decoder__depth=1 + seed % 2,
                                    embedding__tie="none"))
    made = build_model(architecture.block, vocab=vocab, seed=seed, dtype=torch.float64).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in made.parameters():
            weight += sharpness * 0.2 * torch.randn(
                weight.shape, generator=generator, dtype=weight.dtype)
    return made


def sources(seed: int, batch: int, longest_: int = 6, vocab: int = V) -> torch.Tensor:
    rng = Random(seed)
    rows = [[rng.randrange(4, vocab) for _ in range(rng.randint(1, longest_ - 1))] + [EOS]
            for _ in range(batch)]
    return torch.tensor([row + [0] * (longest_ - len(row)) for row in rows])


def log_probability(made, source: torch.Tensor, said: list[int]) -> float:
    """Of ``said`` and EOS, teacher-forced."""
    with torch.no_grad():
        found = made(source[None], torch.tensor([[BOS, *said]]))[0].log_softmax(-1)
    return sum(float(found[i, token]) for i, token in enumerate([*said, EOS]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
def test_a_wide_beam_is_an_exhaustive_search(seed: int, penalty: float) -> None:
    made = model(seed)
    source = sources(seed, 3)
    length = 3
    words = [1, 4, 5]  # all but PAD, BOS, EOS
    every = [list(said) for n in range(length + 1) for said in itertools.product(words, repeat=n)]
    found = beam_search(made, source, beam=len(every), length_penalty=penalty, max_length=length,
                        nbest=4)
    for row, sentence in enumerate(source):
        sentence = sentence[sentence != 0]
        scored = sorted(((log_probability(made, sentence, said) / (len(said) + 1) ** penalty, said)
                         for said in every), reverse=True)
        for rank in range(4):
            assert float(found.scores[row, rank]) == pytest.approx(scored[rank][0], abs=1e-6)
            size = int(found.lengths[row, rank]) - 1
            # which of two with one score comes first is free
            said = found.tokens[row, rank, :size].tolist()
            assert log_probability(made, sentence,
                                   said) / (size + 1) ** penalty == pytest.approx(scored[rank][0])
            assert not found.tokens[row, rank, size:].any()


@pytest.mark.parametrize("seed", range(10))
def test_a_beam_of_one_is_greedy(seed: int) -> None:
    made = model(seed, vocab=12)
    source = sources(seed, 7, vocab=12)
    one = greedy_search(made, source)
    other = beam_search(made, source, beam=1, length_penalty=1.0)
    assert one.best_ids() == other.best_ids()
    assert torch.allclose(one.scores, other.scores.to(one.scores.dtype), atol=1e-5)
    assert torch.equal(one.lengths, other.lengths)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("beam", [1, 2, 4])
def test_companions_and_padding_change_nothing(seed: int, beam: int) -> None:
    made = model(seed, vocab=12)
    source = sources(seed, 6, vocab=12)
    together = beam_search(made, source, beam=beam, nbest=beam)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    wide = torch.nn.functional.pad(source[order], (0, 3))
    turned = beam_search(made, wide, beam=beam, nbest=beam)
    for place, row in enumerate(order.tolist()):
        alone = beam_search(made, source[row : row + 1, : int((source[row] != 0).sum())], beam=beam,
                            nbest=beam)
        for other, index in ((turned, place), (alone, 0)):
            assert together.best_ids()[row] == other.best_ids()[index]
            same = torch.isclose(together.scores[row], other.scores[index], atol=1e-6)
            assert bool(same.all())


def plain_beam(made, source: torch.Tensor, beam: int, penalty: float,
               limit: int) -> list[tuple[float, list[int]]]:
    """The same search, written slowly and without an early end."""
    alive = [(0.0, [])]
    ended = []
    for step in range(limit + 1):
        candidates = []
        for score, said in alive:
            with torch.no_grad():
                found = made(source[None], torch.tensor([[BOS, *said]]))[0, -1].log_softmax(-1)
            allowed = [EOS] if step == limit else [
                token for token in range(len(found)) if token not in (0, BOS)]
            candidates += [(score + float(found[token]), [*said, token]) for token in allowed]
        candidates = sorted(candidates, key=lambda c: -c[0])[: beam - len(ended)]
        ended += [(score / len(said) ** penalty, said[:-1])
                  for score, said in candidates if said[-1] == EOS]
        alive = [c for c in candidates if c[1][-1] != EOS]
    return sorted(ended, key=lambda c: -c[0])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_it_is_the_slow_search_and_its_early_end_loses_nothing(seed: int, penalty: float) -> None:
    made = model(seed, vocab=9)
    source = sources(seed, 4, vocab=9)
    found = beam_search(made, source, beam=3, length_penalty=penalty)
    for row, sentence in enumerate(source):
        sentence = sentence[sentence != 0]
        wanted = plain_beam(made, sentence, 3, penalty, int(default_max_lengths(sentence[None])))
        assert found.best_ids()[row] == wanted[0][1]
        assert float(found.scores[row, 0]) == pytest.approx(wanted[0][0], abs=1e-6)


def test_nothing_is_longer_than_asked_and_specials_are_never_said() -> None:
    for seed in range(8):
        made = model(seed, vocab=12)
        source = sources(seed, 5, vocab=12)
        for found in (greedy_search(made, source, max_length=2),
                      beam_search(made, source, 3, max_length=2)):
            said = found.best_ids()
            assert all(len(ids) <= 2 for ids in said)
            assert not {0, BOS, EOS} & {token for ids in said for token in ids}


def test_the_model_is_run_on_unfinished_hypotheses_only() -> None:
    made = model(5, vocab=12)
    source = sources(5, 8, vocab=12)
    sizes = []
    decode = made.decode
    made.decode = lambda target, memory, cache=None: (
        sizes.append(len(target)), decode(target, memory, cache))[1]
    lengths = greedy_search(made, source).lengths[:, 0]
    assert sizes == [int((lengths > step).sum()) for step in range(int(lengths.max()))]


def test_a_beam_that_makes_no_sense_is_refused() -> None:
    made = model(1)
    source = sources(1, 2)
    for wrong in ({"beam": 0}, {"beam": 2, "nbest": 3}, {"length_penalty": -1.0}):
        with pytest.raises(ValueError, match="beam"):
            beam_search(made, source, **wrong)


def test_hypotheses_cut_off_what_is_padding() -> None:
    found = Hypotheses(torch.tensor([[[5, 6, 0]], [[0, 0, 0]]]), torch.tensor([[3], [1]]),
                       torch.zeros(2, 1))
    assert found.best_ids() == [[5, 6], []]


@pytest.mark.parametrize("vocab", [6, 64, 300, 640, 8000])
@pytest.mark.parametrize("count", [1, 5])
def test_the_best_of_blocks_are_the_best_of_all(vocab: int, count: int) -> None:
    logits = torch.randn(7, vocab, generator=torch.Generator().manual_seed(vocab))
    logits[:, [0, 2]] = -torch.inf
    best, place = blockwise_topk(logits, count)
    wanted = logits.topk(min(count, vocab), 1)
    assert torch.equal(best, wanted.values)
    assert torch.equal(place, wanted.indices)


def test_the_log_partition_is_that_of_all_entries() -> None:
    logits = 9 * torch.randn(7, 300, dtype=torch.float64)
    logits[:, 3] = -torch.inf
    wanted = logits.logsumexp(1, keepdim=True)
    assert torch.allclose(log_partition(logits), wanted, atol=1e-12)
    assert torch.allclose(log_partition(logits.float()).double(), wanted, atol=1e-5)


@pytest.mark.parametrize("bf16", [False, True])
def test_a_matrix_laid_out_anew_changes_no_translation(
        monkeypatch: pytest.MonkeyPatch, bf16: bool) -> None:
    if bf16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("no bf16 here")
    made = model(2, vocab=12).float()
    source = sources(2, 8, vocab=12)
    found = []
    anew = []
    lay_out = module.prepack_weight
    monkeypatch.setattr(module, "prepack_weight",
                        lambda weight: (anew.append(weight), lay_out(weight))[1])
    for many in (10**6, module.MIN_ROWS_TO_PACK):
        monkeypatch.setattr(module, "MIN_ROWS_TO_PACK", many)
        assert not anew
        # searches share what is laid out
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16), made.cached_weights():
            found.append([search(made, source)
                          for search in (greedy_search, beam_search, greedy_search)])
    assert 0 < len(anew) <= len(list(made.modules()))
    for one, other in zip(*found):
        assert torch.equal(one.tokens, other.tokens)
        assert torch.allclose(one.scores, other.scores, atol=0.05 if bf16 else 1e-5)
