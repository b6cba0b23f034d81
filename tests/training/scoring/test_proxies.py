"""Zero-cost proxies: their values, and that they do not change training."""

import copy
import json
import random

import numpy as np
import pytest
import torch

from scalesearch.testing import random_architecture
from scalesearch.training import Result, train
from scalesearch.training.scoring.proxies import (
    PROXY_NAMES,
    compute_proxies,
    gradient_proxies,
    small_batch,
    synflow,
)
from scalesearch.training.updates.engine import build_initial_model
from tests.training.conftest import recipe, tiny
from tests.training.test_run import learned, weights


def model(seed=1, **changes):
    return build_initial_model(tiny(**changes).block, 80, recipe(), seed)


def test_proxies_change_neither_model_nor_generators(corpus):
    subject = model().train()
    before = copy.deepcopy(subject.state_dict())
    grads = torch.ones_like(next(subject.parameters()))
    next(subject.parameters()).grad = grads
    states = torch.get_rng_state(), random.getstate(), str(np.random.get_state())  # noqa: NPY002
    result = compute_proxies(subject, corpus)
    assert set(result) == set(PROXY_NAMES)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (random.getstate(), str(np.random.get_state()))  # noqa: NPY002
    assert all(torch.equal(before[name], weight) for name, weight in subject.state_dict().items())
    assert subject.training and next(subject.parameters()).grad is grads
    assert [p.grad is None for p in subject.parameters()].count(False) == 1
    assert result == compute_proxies(subject, corpus)


def test_proxies_do_not_change_training(corpus, tmp_path):
    results = [train(tiny(), corpus, recipe(), tmp_path / str(on), seed=3, with_proxies=on)
               for on in (False, True)]
    assert learned(results[0]) == learned(results[1])
    first = weights(tmp_path / "False")
    other = weights(tmp_path / "True")
    assert all(torch.equal(first[name], other[name]) for name in first)
    assert "proxies" not in results[0].metrics and set(
        results[1].metrics["proxies"]) == set(PROXY_NAMES)
    assert Result.read(tmp_path / "True").metrics["proxies"] == results[1].metrics["proxies"]
    json.dumps(results[1].metrics["proxies"], allow_nan=False)


@pytest.mark.full
def test_resumed_run_has_proxies_of_its_initial_weights(corpus, tmp_path):
    whole = train(tiny(), corpus, recipe(), tmp_path / "whole",
                  with_proxies=True).metrics["proxies"]
    paused = train(tiny(), corpus, recipe(), tmp_path / "parts", until_share=0.5, with_proxies=True)
    assert paused.state == "paused" and paused.metrics["proxies"] == whole
    assert train(tiny(), corpus, recipe(), tmp_path / "parts",
                 with_proxies=True).metrics["proxies"] == whole


def test_synflow_of_a_linear_network():
    """A product of two matrices: the flow of each is the output for absolute weights."""
    network = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 4, bias=False))

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network

        def forward(self, source, target):
            return self.inner(target)

    table, matrix = (weight.detach().abs().double() for weight in network.parameters())
    out = 8 * float((matrix @ table[4]).sum())
    assert 10 ** synflow(Whole()) == pytest.approx(2 * out, rel=1e-9)


def test_synflow_depends_on_magnitudes_only(corpus):
    subject = model()
    value = compute_proxies(subject, corpus)["synflow"]
    flipped = copy.deepcopy(subject)
    with torch.no_grad():
        for weight in flipped.parameters():
            weight.neg_()
    assert synflow(copy.deepcopy(flipped).eval()) == pytest.approx(value, abs=1e-12)
    assert synflow(copy.deepcopy(subject).eval()) == pytest.approx(value, abs=1e-12)


def test_synflow_grows_with_depth_and_width():
    small, deep, wide = (synflow(model(**changes).eval()) for changes in (
        {}, {"encoder__depth": 3, "decoder__depth": 3}, {"width": 32}))
    assert small < deep and small < wide


def test_proxies_of_zero_initialized_models_depend_on_depth(corpus):
    how = recipe(zero_init=True)
    values = [compute_proxies(build_initial_model(tiny(encoder__depth=depth).block, 80, how, 1),
                              corpus) for depth in (1, 3)]
    for name in PROXY_NAMES:
        assert values[0][name] != values[1][name]


def test_gradient_proxies_equal_manual_computation(corpus):
    subject = model().eval()
    batch = small_batch(corpus)
    result = gradient_proxies(copy.deepcopy(subject), batch)
    loss = torch.zeros(())
    logits = subject(torch.from_numpy(batch.source),
                     torch.from_numpy(batch.target_in)).log_softmax(-1)
    for row, column in zip(*np.nonzero(batch.target_out)):
        loss = loss - logits[row, column, int(batch.target_out[row, column])]
    (loss / batch.tokens).backward()
    parameters = [p for p in subject.parameters() if p.grad is not None]
    assert result["snip"] == pytest.approx(
        sum(float((p.detach() * p.grad).abs().sum()) for p in parameters), rel=1e-4)
    assert result["grad_norm"] == pytest.approx(
        sum(float(p.grad.norm()) for p in parameters), rel=1e-4)


def test_small_batch_is_small_and_deterministic(corpus):
    first = small_batch(corpus)
    same = small_batch(corpus)
    assert np.array_equal(first.indices, same.indices) and 1 <= len(first) <= 16
    assert first.source.size <= 512 and first.target_in.size <= 512


@pytest.mark.parametrize("seed", range(30))
def test_random_architectures_have_all_proxies(corpus, seed):
    subject = build_initial_model(random_architecture(random.Random(seed)).block, 80, recipe(),
                                  seed)
    result = compute_proxies(subject, corpus)
    assert set(result) == set(PROXY_NAMES) and result["snip"] > 0 and result["grad_norm"] > 0
