"""Training and decoding keep tensors on their device and rarely synchronize with it.

No GPU is needed: the tests emulate a device that rejects operations with tensors of the CPU.
Synchronizations of the host are counted on the CPU.
"""

from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
import torch

from scalesearch.data import Batch
from scalesearch.data.soft_targets import SoftTargetBatch
from scalesearch.library import find_file
from scalesearch.nn import Seq2SeqModel, build_model, decode
from scalesearch.nn.beam_search import BeamSearchState, beam_search
from scalesearch.nn.decode import greedy_search
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.spaces.space import read_space
from scalesearch.training.hardware import Hardware
from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.engine import Engine
from tests.architectures import transformer_config
from tests.devices import DEVICE, CountSynchronizations, OnDevice, to_device
from tests.nn.covering import covering
from tests.nn.test_decode import model, sources

FAMILIES = [f"small/{name}" for name in ("plain", "partialformer", "anthe", "edgeformer")]
FAMILIES += [f"reference/{name}" for name in ("subformer", "evolved", "delight-d128")]
IDS = np.array([[5, 6, 7, 3], [6, 4, 3, 0]])
BATCH = Batch(IDS, IDS, IDS, np.arange(2))
VOCAB = 8
MAX_LENGTH = 5  # decoded tokens; later steps repeat the same operations
SOFT = replace(BATCH,
               soft_targets=SoftTargetBatch(np.stack([IDS, 7 - IDS], -1),
                                            np.full((*IDS.shape, 2), 0.5, np.float32)))

CPU = Hardware(torch.device("cpu"), uses_bf16=False, is_compiled=False)


class EmulatedHardware(Hardware):
    """The device that the tests emulate."""

    def autocast(self):
        """No autocast, which PyTorch lacks for this device."""
        return nullcontext()


def shipped(name):
    return read_space(find_file(name, "spaces")).single_architecture()


def build_sgd(groups, recipe, capturable):
    """Replacement of AdamW, whose fused kernel PyTorch rejects on the device."""
    return torch.optim.SGD(groups, 1e-3)


def results(network, hardware, optimizer, batch, kernel="products"):
    """Losses of two updates, and hypotheses of greedy and beam search after them.

    The default kernel is ``products``: fused attention is rounded differently on the CPU and on the
    device, on which PyTorch composes it.
    """
    with patch("scalesearch.training.updates.optimizers.build_adamw", build_sgd):
        engine = Engine(network.train(), Recipe(steps=10, optimizer=optimizer, clip_norm=0),
                        hardware)
    network.set_attention(kernel)
    losses = [engine.update([batch], 1e-3) for _ in range(2)]
    network.eval()
    source = hardware.to_device(IDS)
    searches = (greedy_search(network, source, MAX_LENGTH, compaction_interval=2),
                beam_search(network, source, 3, max_length=MAX_LENGTH))
    return [*losses, *(tensor for hypotheses in searches for tensor in vars(hypotheses).values())]


def on_device(network, *arguments):
    """:func:`results` on the device; raises AssertionError if a tensor is on the CPU."""
    # PyTorch has no autocast and no views in inference mode for the device.
    with (patch("torch.is_autocast_enabled", lambda *device: False),
          patch("torch.inference_mode", torch.no_grad), OnDevice()):
        hardware = EmulatedHardware(DEVICE, uses_bf16=False, is_compiled=False)
        return results(to_device(network), hardware, *arguments)


def check_on_device(block, optimizer="adamw", batch=BATCH):
    """Train and decode on the device and on the CPU, with equal results."""
    network = build_model(block, vocab=VOCAB)
    device_results = on_device(network, optimizer, batch)
    cpu_results = results(network, CPU, optimizer, batch)
    for wrapper, expected in zip(device_results, cpu_results, strict=True):
        value = wrapper.cpu_tensor
        assert torch.allclose(value.double(), expected.double(), rtol=1e-5, atol=1e-6), (
            value, expected)


@pytest.mark.full
@pytest.mark.parametrize("name", FAMILIES)
def test_families_stay_on_their_device(name):
    check_on_device(shipped(name).block)


@pytest.mark.full
@pytest.mark.parametrize("name", FAMILIES[:4])
def test_families_stay_on_their_device_by_fused_attention(name):
    assert on_device(build_model(shipped(name).block, vocab=VOCAB), "adamw", BATCH, "fused")


@cache
def random_models():
    return covering(Random(20261123), 16)


@pytest.mark.full
@pytest.mark.parametrize("number", range(16))
def test_random_models_of_all_blocks_stay_on_their_device(number):
    check_on_device(random_models()[number].block)


@pytest.mark.full
@pytest.mark.parametrize("optimizer", ["adamw", "muon", "soap"])
def test_optimizers_stay_on_their_device(optimizer):
    check_on_device(shipped("small/plain").block, optimizer)


@pytest.mark.full
def test_soft_targets_stay_on_their_device():
    check_on_device(shipped("small/plain").block, batch=SOFT)


@pytest.mark.full
@pytest.mark.parametrize("inserted",
                         [lambda x: x.masked_fill(torch.ones(x.shape) < 0, 0.0),
                          lambda x: x.index_select(0, torch.arange(len(x))),
                          lambda x: x + torch.ones(1)])
@pytest.mark.parametrize(
    "place", ["logits of searches", "state of beam search", "input of the encoder"])
def test_tensors_on_the_cpu_are_detected(place, inserted, monkeypatch):
    functions = {"logits of searches": (decode, "log_partition"),
                 "state of beam search": (BeamSearchState, "_end"),
                 "input of the encoder": (Seq2SeqModel, "encode")}
    owner, name = functions[place]
    original = getattr(owner, name)

    def broken(*arguments):
        index = next(i for i, argument in enumerate(arguments)
                     if isinstance(argument, torch.Tensor))
        return original(*arguments[:index], inserted(arguments[index]), *arguments[index + 1 :])

    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError, match="on cpu, not on the device"):
        check_on_device(shipped("small/plain").block)


@pytest.mark.parametrize(("optimizer", "batch"),
                         [("adamw", BATCH), ("muon", BATCH), ("soap", BATCH), ("adamw", SOFT)])
def test_update_does_not_synchronize(optimizer, batch):
    network = build_model(shipped("small/partialformer").block, vocab=VOCAB).train()
    engine = Engine(network, Recipe(steps=10, optimizer=optimizer), CPU)
    engine.update([batch], 1e-3)  # the first update of soap checks that gradients are finite
    with CountSynchronizations() as synchronizations:
        loss = engine.update([batch], 1e-3)
    assert synchronizations.count == 0, synchronizations.counts
    with CountSynchronizations() as synchronizations:
        loss.item()
    assert synchronizations.count == 1


def test_adaptive_softmax_synchronizes_once_per_band():
    """The tokens of a band depend on data of the device."""
    bands = {"embedding.cutoffs": (3, 6), "embedding.factor": 2}
    network = assemble(transformer_config(embedding="adaptive") | bands)
    engine = Engine(build_model(network.block, vocab=VOCAB), Recipe(steps=10), CPU)
    with CountSynchronizations() as synchronizations:
        engine.update([BATCH], 1e-3)
    assert synchronizations.counts == {"nonzero": 2}


def test_greedy_search_synchronizes_once_per_compaction():
    network = model(5, vocab=12)
    source = sources(5, 7, vocab=12)
    with CountSynchronizations() as every_step:
        hypotheses = greedy_search(network, source)
    with CountSynchronizations() as every_fourth_step:
        compacted = greedy_search(network, source, compaction_interval=4)
    steps = int(hypotheses.lengths.max())
    assert steps > 4
    # one synchronization is for the greatest length
    assert every_step.count <= steps + 1
    assert every_fourth_step.count <= steps // 4 + 2
    assert hypotheses.best_ids() == compacted.best_ids()
    assert torch.equal(hypotheses.lengths, compacted.lengths)
    assert torch.allclose(hypotheses.scores, compacted.scores, atol=1e-12)


def test_beam_search_synchronizes_twice_per_step():
    network = model(5, vocab=12)
    source = sources(5, 1, vocab=12)
    with CountSynchronizations() as synchronizations:
        hypotheses = beam_search(network, source, beam=3, max_length=9)
    # at most 6 more: before the first step, and when finished rows are removed
    limit = 2 * (int(hypotheses.lengths.max()) + 1) + 6
    assert synchronizations.count <= limit, synchronizations.counts
