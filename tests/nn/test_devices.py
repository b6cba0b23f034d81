"""Training and decoding make nothing on another device, and seldom wait for the one they are on.

No GPU is needed: on the meta device a tensor of the CPU's is seen at the first operation that meets it, and what the
host would wait for is counted on the CPU.
"""

from contextlib import nullcontext
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
import torch

from scalesearch.data import Batch
from scalesearch.library import find_file
from scalesearch.nn import build
from scalesearch.nn.decode import beam_search, greedy
from scalesearch.space.assembly.architecture import assemble
from scalesearch.space.space import read_space
from scalesearch.train.engine import Engine
from scalesearch.train.hardware import Hardware
from scalesearch.train.recipe import Recipe
from tests.architectures import answers
from tests.devices import On, Waits
from tests.nn.covering import covering
from tests.nn.test_decode import model, sources

FAMILIES = [f"small/{name}" for name in ("plain", "partialformer", "anthe", "edgeformer")]
FAMILIES += [f"reference/{name}" for name in ("subformer", "evolved", "delight-d128")]
IDS = np.array([[5, 6, 7, 3], [6, 4, 3, 0]])
BATCH = Batch(IDS, IDS, IDS, np.arange(2))
VOCAB = 8
TYPES = {np.int64: torch.int64, np.int32: torch.int32}


class Elsewhere(Hardware):
    """A device of which a CPU without CUDA knows shapes alone."""

    def tensor(self, array):
        """A batch's array, there."""
        return torch.empty(array.shape, dtype=TYPES[array.dtype.type], device=self.device)

    def autocast(self):
        """No context: PyTorch has none for it."""
        return nullcontext()


META = Elsewhere(torch.device("meta"), bf16=False, compiled=False)


def named(name):
    return read_space(find_file(name, "spaces")).closed()


def train_and_decode(block, optimizer="adamw"):
    """Two updates, an encoding and two steps of decoding on meta, on which PyTorch has no clipping and no AdamW."""
    made = build(block, vocab=VOCAB, device="meta").train()
    with patch("scalesearch.train.optimizers.adamw", lambda groups, recipe: torch.optim.SGD(groups, 1e-3)):
        engine = Engine(made, Recipe(steps=10, optimizer=optimizer, dropout=0.1, clip_norm=0), META)
    # PyTorch knows no autocast for meta.
    with patch("torch.is_autocast_enabled", lambda *device: False), On("meta"):
        for _ in range(2):
            engine.update([BATCH], 1e-3)
        made.eval()
        source = META.tensor(IDS)
        with torch.inference_mode(), made.folded():
            memory, cache = made.encode(source), made.new_cache()
            for _ in range(2):
                states = made.decode(source[:, :1], memory, cache)
            assert made.logits(states).shape[-1] == VOCAB


@pytest.mark.parametrize("name", FAMILIES)
def test_families_stay_on_their_device(name):
    train_and_decode(named(name).block)


def test_random_models_of_all_blocks_stay_on_their_device():
    found = [one for one in covering(Random(20261123), 16) if one.answers["embedding"] != "adaptive"]
    assert len(found) > 8
    for architecture in found:
        train_and_decode(architecture.block)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])  # soap's first update looks at its gradients
def test_optimisers_stay_on_their_device(optimizer):
    train_and_decode(named("small/plain").block, optimizer)


@pytest.mark.parametrize("planted", [lambda x: x.masked_fill(torch.ones(x.shape) < 0, 0.0),
                                     lambda x: x.index_select(0, torch.arange(len(x))), lambda x: x + torch.ones(1)])
def test_a_tensor_that_is_made_elsewhere_is_seen(planted, monkeypatch):
    made = build(named("small/plain").block, vocab=VOCAB, device="meta")
    encode = type(made).encode
    monkeypatch.setattr(type(made), "encode", lambda self, source: encode(self, planted(source)))
    with pytest.raises(AssertionError, match="on cpu, not on meta"), On("meta"):
        made.encode(META.tensor(IDS))


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "soap"])
def test_an_update_waits_for_nothing(optimizer):
    made = build(named("small/partialformer").block, vocab=VOCAB).train()
    engine = Engine(made, Recipe(steps=10, optimizer=optimizer), Hardware(torch.device("cpu"), False, False))
    engine.update([BATCH], 1e-3)  # the first one of soap looks whether its gradients are finite
    with Waits() as waits:
        loss = engine.update([BATCH], 1e-3)
    assert waits.count == 0, waits.found
    with Waits() as waits:
        loss.item()
    assert waits.count == 1


def test_an_adaptive_softmax_waits_once_a_band():
    """Whose tokens are in a band is known to the device alone."""
    bands = {"embedding.cutoffs": (3, 6), "embedding.factor": 2}
    found = assemble(answers(embedding="adaptive") | bands)
    engine = Engine(build(found.block, vocab=VOCAB), Recipe(steps=10), Hardware(torch.device("cpu"), False, False))
    with Waits() as waits:
        engine.update([BATCH], 1e-3)
    assert waits.found == {"nonzero": 2}


def test_greedy_waits_once_a_step_and_less_where_that_is_asked_for():
    made, source = model(5, vocab=12), sources(5, 7, vocab=12)
    with Waits() as each:
        one = greedy(made, source)
    with Waits() as seldom:
        other = greedy(made, source, apart=4)
    steps = int(one.lengths.max())
    assert steps > 4 and each.count <= steps + 1 and seldom.count <= steps // 4 + 2  # one is for the greatest length
    assert one.best() == other.best()
    assert torch.equal(one.lengths, other.lengths) and torch.allclose(one.scores, other.scores, atol=1e-12)


def test_a_beam_waits_twice_a_step():
    made, source = model(5, vocab=12), sources(5, 1, vocab=12)
    with Waits() as waits:
        found = beam_search(made, source, beam=3, max_length=9)
    assert waits.count <= 2 * (int(found.lengths.max()) + 1) + 6, waits.found  # and a few before and where rows leave
