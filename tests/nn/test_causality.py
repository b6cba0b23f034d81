"""The causality check accepts causal models and names the dependency of a leak."""

from random import Random

import pytest
import torch
from torch import nn

from scalesearch.blocks.leaves import Convolution
from scalesearch.nn import build_model
from scalesearch.nn.causality import CausalityError, check_causality
from scalesearch.spaces import Space
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.testing import random_architecture
from tests.architectures import transformer_config
from tests.errors import refuses

V = 17


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_random_models_are_causal(seed: int) -> None:
    architecture = random_architecture(Random(seed))
    check_causality(build_model(architecture.block, vocab=V, seed=seed), V)


class Leaky(nn.Module):
    """A causal model whose logits get an additional, leaking term."""

    def __init__(self, leak) -> None:
        super().__init__()
        self.inner = build_model(assemble(transformer_config()).block, vocab=V)
        self.gate = nn.Parameter(torch.zeros(()))
        self.leak = leak

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = self.inner(source, target)
        return logits + self.gate * self.leak(logits, source, target)


def next_token(logits, source, target):
    return torch.nn.functional.pad(target, (0, 1))[:, 1:, None].to(logits.dtype)


def token_at(distance):
    """A leak from one distance only."""
    return lambda logits, source, target: nn.functional.pad(
        target, (0, distance))[:, distance:, None].to(logits.dtype)


def padding_at(distance):
    """A leak of source padding that is ``distance`` positions behind a token."""
    return lambda logits, source, target: (source[:, distance:]
                                           == 0).any() * torch.ones_like(logits)


def mean_over_time(logits, source, target):
    return logits.mean(1, keepdim=True)


def future_if_lengths_are_equal(logits, source, target):
    """A gate over the wrong axis, which leaks only if S == T."""
    return logits.flip(1) if source.shape[1] == target.shape[1] else logits * 0


def length_of_the_target(logits, source, target):
    return torch.full_like(logits, float((target != 0).sum(1).max()))


def mean_over_sentences(logits, source, target):
    return logits.mean(0, keepdim=True)


def previous_sentence(logits, source, target):
    return logits.roll(1, 0)


def batch_size(logits, source, target):
    return torch.full_like(logits, float(len(target)))


def width_of_the_source(logits, source, target):
    return torch.full_like(logits, float(source.shape[1]))


def padding_counted(logits, source, target):
    return (source == 0).sum(1)[:, None, None] * torch.ones_like(logits)


@pytest.mark.parametrize(
    ("leak", "dependency"),
    [
        (next_token, "a later target token"),
        *((token_at(distance), "a later target token") for distance in (2, 7, 8, 19, 31, 39)),
        (mean_over_time, "a later target token"),
        (future_if_lengths_are_equal, "a later target token"),
        (length_of_the_target, "a later target token"),
        (mean_over_sentences, "another sentence"),
        (previous_sentence, "another sentence"),
        (batch_size, "another sentence"),
        (width_of_the_source, "padding"),
        (padding_counted, "padding"),
        (padding_at(20), "padding"),
    ],
)
def test_leaks_are_named_even_behind_a_zero_gate(leak, dependency: str) -> None:
    with pytest.raises(CausalityError) as error:
        check_causality(Leaky(leak), V)
    assert error.value.dependency == dependency
    assert "S=" in error.value.detail and "position" in error.value.detail


def test_decoder_without_mask_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    from scalesearch.blocks import seq2seq

    original = seq2seq.mask_bias
    monkeypatch.setattr(seq2seq, "mask_bias",
                        lambda hidden, dtype: original(torch.zeros_like(hidden), dtype))
    with refuses("not-causal", "a later target token"):
        check_causality(build_model(assemble(transformer_config()).block, vocab=V), V)


@pytest.mark.parametrize("dilation", [1, 8, 64])
def test_non_causal_convolution_is_detected(monkeypatch: pytest.MonkeyPatch, dilation: int) -> None:
    original = Convolution.forward

    def ahead(self: Convolution, m, x, cache=None):
        return original(self, m, x.flip(1),
                        cache).flip(1) if self.dilation == dilation else original(self, m, x, cache)

    block = Space.parse("width: 34\nembedding: { tie: none, h-softpos: { levels: 8, level_width: "
                        "2, roles: 2 } }\nencoder: { depth: 1, heads: 2 }\ndecoder: { depth: 1, "
                        "heads: 2 }\n").single_architecture().block
    check_causality(build_model(block, vocab=V), V)
    monkeypatch.setattr(Convolution, "forward", ahead)
    with refuses("not-causal"):
        check_causality(build_model(block, vocab=V), V)


def test_check_does_not_change_the_model() -> None:
    model = build_model(assemble(transformer_config()).block, vocab=V).train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    check_causality(model, V)
    assert model.training
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_large_models_are_checked_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalesearch.nn.causality.MAX_FP64_PARAMETERS", 0)
    check_causality(build_model(assemble(transformer_config(width=64)).block, vocab=V), V)
    with refuses("not-causal", "a later target token"):
        check_causality(Leaky(mean_over_time), V)
