"""Training and decoding make nothing on another device, and seldom wait for the one they are on.

No GPU is needed: the tests have a device of their own, on which a tensor of the CPU's is seen at
the first operation that meets it, and what the host would wait for is counted on the CPU.
"""

from contextlib import nullcontext
from dataclasses import replace
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
import torch

from scalesearch.data import Batch
from scalesearch.data.soft_targets import SoftTargetBatch
from scalesearch.library import find_file
from scalesearch.nn import Seq2SeqModel, build_model, decode
from scalesearch.nn.beam_search import _BeamSearchState as beams
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import greedy_search
from scalesearch.space.assembly.architecture import assemble
from scalesearch.space.space import read_space
from scalesearch.train.hardware import Hardware
from scalesearch.train.recipe import Recipe
from scalesearch.train.updates.engine import Engine
from tests.architectures import transformer_config
from tests.devices import DEVICE, OnDevice, CountSynchronizations, to_device
from tests.nn.covering import covering
from tests.nn.test_decode import model, sources

FAMILIES = [f"small/{name}" for name in ("plain", "partialformer", "anthe", "edgeformer")]
FAMILIES += [f"reference/{name}" for name in ("subformer", "evolved", "delight-d128")]
IDS = np.array([[5, 6, 7, 3], [6, 4, 3, 0]])
BATCH = Batch(IDS, IDS, IDS, np.arange(2))
VOCAB = 8
FEW = 5  # tokens that there are, and that are decoded: what comes later is like what was before
SOFT = replace(BATCH,
               soft_targets=SoftTargetBatch(np.stack([IDS, 7 - IDS], -1),
                                            np.full((*IDS.shape, 2), 0.5, np.float32)))

CPU = Hardware(torch.device("cpu"), uses_bf16=False, is_compiled=False)


class Elsewhere(Hardware):
    """The device that only the tests have."""

    def autocast(self):
        """No context: PyTorch has none for it."""
        return nullcontext()


def named(name):
    return read_space(find_file(name, "spaces")).single_architecture()


def sgd(groups, recipe):
    """In the place of AdamW, whose fused kernel PyTorch refuses on the device."""
    return torch.optim.SGD(groups, 1e-3)


def results(made, hardware, optimizer, batch, kernel="products"):
    """Losses of two updates, and hypotheses of greedy and beam decoding after them.

    By products: fused attention is rounded otherwise on the CPU than on the device, where PyTorch
    composes it.
    """
    with patch("scalesearch.train.updates.optimizers.build_adamw", sgd):
        engine = Engine(made.train(), Recipe(steps=10, optimizer=optimizer, clip_norm=0), hardware)
    made.set_attention(kernel)
    losses = [engine.update([batch], 1e-3) for _ in range(2)]
    made.eval()
    source = hardware.to_device(IDS)
    found = greedy_search(made, source, FEW, compaction_interval=2), beam_search(
        made, source, 3, max_length=FEW)
    return [*losses, *(tensor for hypotheses in found for tensor in vars(hypotheses).values())]


def on_device(made, *how):
    """:func:`results` on the device. Raises AssertionError where a tensor is elsewhere."""
    # PyTorch knows no autocast for it, and no view in inference mode.
    with (patch("torch.is_autocast_enabled", lambda *device: False),
          patch("torch.inference_mode", torch.no_grad), OnDevice()):
        return results(to_device(made), Elsewhere(DEVICE, uses_bf16=False, is_compiled=False), *how)


def check_on_device(block, optimizer="adamw", batch=BATCH):
    """Trains and decodes on the device and on the CPU, with the same results."""
    made = build_model(block, vocab=VOCAB)
    there = on_device(made, optimizer, batch)
    for one, other in zip(there, results(made, CPU, optimizer, batch), strict=True):
        assert torch.allclose(
            one.held.double(), other.double(), rtol=1e-5, atol=1e-6), (one.held, other)


@pytest.mark.parametrize("name", FAMILIES)
def test_families_stay_on_their_device(name):
    check_on_device(named(name).block)


@pytest.mark.parametrize("name", FAMILIES[:4])
def test_families_stay_on_their_device_by_fused_attention(name):
    assert on_device(build_model(named(name).block, vocab=VOCAB), "adamw", BATCH, "fused")


def test_random_models_of_all_blocks_stay_on_their_device():
    for architecture in covering(Random(20261123), 16):
        check_on_device(architecture.block)


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "soap"])
def test_optimizers_stay_on_their_device(optimizer):
    check_on_device(named("small/plain").block, optimizer)


def test_soft_targets_stay_on_their_device():
    check_on_device(named("small/plain").block, batch=SOFT)


@pytest.mark.parametrize("planted",
                         [lambda x: x.masked_fill(torch.ones(x.shape) < 0, 0.0),
                          lambda x: x.index_select(0, torch.arange(len(x))),
                          lambda x: x + torch.ones(1)])
@pytest.mark.parametrize(
    "place", ["greedy's and the beam's logits", "what a beam keeps", "the encoder's input"])
def test_a_tensor_that_is_made_elsewhere_is_seen(place, planted, monkeypatch):
    where = {"greedy's and the beam's logits": (decode, "log_partition"),
             "what a beam keeps": (beams, "_end"), "the encoder's input": (Seq2SeqModel, "encode")}
    owner, name = where[place]
    kept = getattr(owner, name)

    def broken(*given):
        at = next(i for i, one in enumerate(given) if isinstance(one, torch.Tensor))
        return kept(*given[:at], planted(given[at]), *given[at + 1 :])

    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError, match="on cpu, not on the device"):
        check_on_device(named("small/plain").block)


@pytest.mark.parametrize(("optimizer", "batch"),
                         [("adamw", BATCH), ("muon", BATCH), ("soap", BATCH), ("adamw", SOFT)])
def test_an_update_waits_for_nothing(optimizer, batch):
    made = build_model(named("small/partialformer").block, vocab=VOCAB).train()
    engine = Engine(made, Recipe(steps=10, optimizer=optimizer), CPU)
    engine.update([batch], 1e-3)  # the first one of soap looks whether its gradients are finite
    with CountSynchronizations() as synchronizations:
        loss = engine.update([batch], 1e-3)
    assert synchronizations.count == 0, synchronizations.counts
    with CountSynchronizations() as synchronizations:
        loss.item()
    assert synchronizations.count == 1


def test_an_adaptive_softmax_waits_once_a_band():
    """Whose tokens are in a band is known to the device alone."""
    bands = {"embedding.cutoffs": (3, 6), "embedding.factor": 2}
    found = assemble(transformer_config(embedding="adaptive") | bands)
    engine = Engine(build_model(found.block, vocab=VOCAB), Recipe(steps=10), CPU)
    with CountSynchronizations() as synchronizations:
        engine.update([BATCH], 1e-3)
    assert synchronizations.counts == {"nonzero": 2}


def test_greedy_waits_once_a_step_and_less_where_that_is_asked_for():
    made = model(5, vocab=12)
    source = sources(5, 7, vocab=12)
    with CountSynchronizations() as each:
        one = greedy_search(made, source)
    with CountSynchronizations() as seldom:
        other = greedy_search(made, source, compaction_interval=4)
    steps = int(one.lengths.max())
    # one is for the greatest length
    assert steps > 4 and each.count <= steps + 1 and seldom.count <= steps // 4 + 2
    assert one.best_ids() == other.best_ids()
    assert torch.equal(one.lengths, other.lengths) and torch.allclose(
        one.scores, other.scores, atol=1e-12)


def test_a_beam_waits_twice_a_step():
    made = model(5, vocab=12)
    source = sources(5, 1, vocab=12)
    with CountSynchronizations() as synchronizations:
        found = beam_search(made, source, beam=3, max_length=9)
    # and a few before and where rows leave
    assert synchronizations.count <= 2 * (int(found.lengths.max()) + 1) + 6, synchronizations.counts
