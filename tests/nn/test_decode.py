"""Greedy and beam search: exhaustive search, batching and limits."""

import itertools
from functools import partial
from random import Random

import pytest
import torch

from scalesearch.blocks.core import BOS, EOS, UNK
from scalesearch.nn import build_model, module
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import (
    Hypotheses,
    blockwise_topk,
    default_max_lengths,
    greedy_search,
    log_partition,
)
from scalesearch.spaces.assembly.architecture import assemble
from tests.architectures import transformer_config

V = 6  # PAD, UNK, BOS, EOS and two words


def model(seed: int, vocab: int = V, sharpness: float = 3.0):
    """A random model whose next token depends strongly on source and prefix."""
    kind = "decoder-only" if seed % 3 == 0 else "encoder-decoder"
    architecture = assemble(transformer_config(model=kind, encoder__depth=1,
                                               decoder__depth=1 + seed % 2,
                                               embedding__tie="none"))
    network = build_model(architecture.block, vocab=vocab, seed=seed, dtype=torch.float64).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in network.parameters():
            weight += sharpness * 0.2 * torch.randn(
                weight.shape, generator=generator, dtype=weight.dtype)
    return network


def sources(seed: int, batch: int, max_length: int = 6, vocab: int = V) -> torch.Tensor:
    rng = Random(seed)
    rows = [[rng.randrange(4, vocab) for _ in range(rng.randint(1, max_length - 1))] + [EOS]
            for _ in range(batch)]
    return torch.tensor([row + [0] * (max_length - len(row)) for row in rows])


def log_probability(network, source: torch.Tensor, tokens: list[int]) -> float:
    """Log probability of ``tokens`` and EOS, with teacher forcing."""
    with torch.no_grad():
        log_probs = network(source[None], torch.tensor([[BOS, *tokens]]))[0].log_softmax(-1)
    return sum(float(log_probs[i, token]) for i, token in enumerate([*tokens, EOS]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("allow_unk", [False, True])
def test_wide_beam_equals_exhaustive_search(seed: int, penalty: float, allow_unk: bool) -> None:
    network = model(seed)
    source = sources(seed, 3)
    length = 3
    words = [UNK, 4, 5] if allow_unk else [4, 5]
    all_outputs = [list(tokens) for n in range(length + 1)
                   for tokens in itertools.product(words, repeat=n)]
    hypotheses = beam_search(network, source, beam=len(all_outputs), length_penalty=penalty,
                             max_length=length, nbest=4, allow_unk=allow_unk)
    for row, sentence in enumerate(source):
        sentence = sentence[sentence != 0]
        scored = sorted(((log_probability(network, sentence, tokens)
                          / (len(tokens) + 1) ** penalty, tokens)
                         for tokens in all_outputs), reverse=True)
        for rank in range(4):
            assert float(hypotheses.scores[row, rank]) == pytest.approx(scored[rank][0], abs=1e-6)
            size = int(hypotheses.lengths[row, rank]) - 1
            # the order of equal scores is arbitrary
            tokens = hypotheses.tokens[row, rank, :size].tolist()
            assert log_probability(network, sentence,
                                   tokens) / (size + 1) ** penalty == pytest.approx(scored[rank][0])
            assert not hypotheses.tokens[row, rank, size:].any()


@pytest.mark.parametrize("seed", range(10))
def test_beam_of_one_equals_greedy_search(seed: int) -> None:
    network = model(seed, vocab=12)
    source = sources(seed, 7, vocab=12)
    greedy = greedy_search(network, source)
    beam = beam_search(network, source, beam=1, length_penalty=1.0)
    assert greedy.best_ids() == beam.best_ids()
    assert torch.allclose(greedy.scores, beam.scores.to(greedy.scores.dtype), atol=1e-5)
    assert torch.equal(greedy.lengths, beam.lengths)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("beam", [1, 2, 4])
def test_batch_and_padding_do_not_change_results(seed: int, beam: int) -> None:
    network = model(seed, vocab=12)
    source = sources(seed, 6, vocab=12)
    batched = beam_search(network, source, beam=beam, nbest=beam)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    wide = torch.nn.functional.pad(source[order], (0, 3))
    permuted = beam_search(network, wide, beam=beam, nbest=beam)
    for position, row in enumerate(order.tolist()):
        sentence = source[row : row + 1, : int((source[row] != 0).sum())]
        single = beam_search(network, sentence, beam=beam, nbest=beam)
        for other, index in ((permuted, position), (single, 0)):
            assert batched.best_ids()[row] == other.best_ids()[index]
            same = torch.isclose(batched.scores[row], other.scores[index], atol=1e-6)
            assert bool(same.all())


def reference_beam_search(network, source: torch.Tensor, beam: int, penalty: float,
                          limit: int) -> list[tuple[float, list[int]]]:
    """A slow reference implementation without early stopping."""
    active = [(0.0, [])]
    finished = []
    for step in range(limit + 1):
        candidates = []
        for score, tokens in active:
            with torch.no_grad():
                logits = network(source[None], torch.tensor([[BOS, *tokens]]))[0, -1]
                log_probs = logits.log_softmax(-1)
            allowed = [EOS] if step == limit else [
                token for token in range(len(log_probs)) if token not in (0, UNK, BOS)]
            candidates += [(score + float(log_probs[token]), [*tokens, token]) for token in allowed]
        candidates = sorted(candidates, key=lambda c: -c[0])[: beam - len(finished)]
        finished += [(score / len(tokens) ** penalty, tokens[:-1])
                     for score, tokens in candidates if tokens[-1] == EOS]
        active = [c for c in candidates if c[1][-1] != EOS]
    return sorted(finished, key=lambda c: -c[0])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_beam_search_equals_search_without_early_stopping(seed: int, penalty: float) -> None:
    network = model(seed, vocab=9)
    source = sources(seed, 4, vocab=9)
    hypotheses = beam_search(network, source, beam=3, length_penalty=penalty)
    for row, sentence in enumerate(source):
        sentence = sentence[sentence != 0]
        limit = int(default_max_lengths(sentence[None]))
        expected = reference_beam_search(network, sentence, 3, penalty, limit)
        assert hypotheses.best_ids()[row] == expected[0][1]
        assert float(hypotheses.scores[row, 0]) == pytest.approx(expected[0][0], abs=1e-6)


def test_outputs_respect_max_length_and_contain_no_special_tokens() -> None:
    for seed in range(8):
        network = model(seed, vocab=12)
        source = sources(seed, 5, vocab=12)
        for hypotheses in (greedy_search(network, source, max_length=2),
                           beam_search(network, source, 3, max_length=2)):
            outputs = hypotheses.best_ids()
            assert all(len(ids) <= 2 for ids in outputs)
            assert not {0, UNK, BOS, EOS} & {token for ids in outputs for token in ids}


def test_unknown_token_is_generated_only_if_allowed() -> None:
    network = model(1, vocab=12)
    logits = network.logits
    bonus = torch.zeros(12, dtype=torch.float64)
    bonus[UNK] = 50.0  # the most probable token of every step
    network.logits = lambda states: logits(states) + bonus
    source = sources(1, 5, vocab=12)
    for search in (greedy_search, partial(beam_search, beam=3)):
        assert all(UNK not in ids for ids in search(network, source).best_ids())
        allowed = search(network, source, max_length=4, allow_unk=True)
        assert allowed.best_ids() == [[UNK] * 4] * 5


def test_finished_hypotheses_are_not_decoded() -> None:
    network = model(5, vocab=12)
    source = sources(5, 8, vocab=12)
    sizes = []
    decode = network.decode
    network.decode = lambda target, memory, cache=None: (
        sizes.append(len(target)), decode(target, memory, cache))[1]
    lengths = greedy_search(network, source).lengths[:, 0]
    assert sizes == [int((lengths > step).sum()) for step in range(int(lengths.max()))]


def test_invalid_beam_options_are_rejected() -> None:
    network = model(1)
    source = sources(1, 2)
    for options in ({"beam": 0}, {"beam": 2, "nbest": 3}, {"length_penalty": -1.0}):
        with pytest.raises(ValueError, match="beam"):
            beam_search(network, source, **options)


def test_hypotheses_exclude_padding() -> None:
    hypotheses = Hypotheses(torch.tensor([[[5, 6, 0]], [[0, 0, 0]]]), torch.tensor([[3], [1]]),
                            torch.zeros(2, 1))
    assert hypotheses.best_ids() == [[5, 6], []]


@pytest.mark.parametrize("vocab", [6, 64, 300, 640, 8000])
@pytest.mark.parametrize("count", [1, 5])
def test_blockwise_topk_equals_topk(vocab: int, count: int) -> None:
    logits = torch.randn(7, vocab, generator=torch.Generator().manual_seed(vocab))
    logits[:, [0, 2]] = -torch.inf
    best, indices = blockwise_topk(logits, count)
    expected = logits.topk(min(count, vocab), 1)
    assert torch.equal(best, expected.values)
    assert torch.equal(indices, expected.indices)


def test_log_partition_equals_logsumexp() -> None:
    logits = 9 * torch.randn(7, 300, dtype=torch.float64)
    logits[:, 3] = -torch.inf
    expected = logits.logsumexp(1, keepdim=True)
    assert torch.allclose(log_partition(logits), expected, atol=1e-12)
    assert torch.allclose(log_partition(logits.float()).double(), expected, atol=1e-5)


@pytest.mark.parametrize("bf16", [False, True])
def test_prepacked_weights_do_not_change_translations(
        monkeypatch: pytest.MonkeyPatch, bf16: bool) -> None:
    if bf16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("no bf16 here")
    network = model(2, vocab=12).float()
    source = sources(2, 8, vocab=12)
    results = []
    packed = []
    prepack_weight = module.prepack_weight
    monkeypatch.setattr(module, "prepack_weight",
                        lambda weight: (packed.append(weight), prepack_weight(weight))[1])
    for min_rows in (10**6, module.MIN_ROWS_TO_PACK):
        monkeypatch.setattr(module, "MIN_ROWS_TO_PACK", min_rows)
        assert not packed
        # the searches share the packed weights
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16), network.cached_weights():
            results.append([search(network, source)
                            for search in (greedy_search, beam_search, greedy_search)])
    assert 0 < len(packed) <= len(list(network.modules()))
    for unpacked, prepacked in zip(*results):
        assert torch.equal(unpacked.tokens, prepacked.tokens)
        assert torch.allclose(unpacked.scores, prepacked.scores, atol=0.05 if bf16 else 1e-5)
