"""Batches gathered from the text on the device: equal to those of the host, without waiting."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.data import BatchStream, Corpus, Split, retokenize
from scalesearch.data.batching import Buckets, PlannedBatch, make_batch
from scalesearch.data.split import RaggedArray
from scalesearch.tasks import TASKS, Texts
from scalesearch.training.updates.captured import CapturedEngine, StaticBatch
from scalesearch.training.updates.engine import Engine
from scalesearch.training.updates.resident_data import ResidentSplit
from tests.devices import CountSynchronizations
from tests.tasks.small import corpus_of, model_for
from tests.training.conftest import tiny
from tests.training.updates.test_captured import RecordingEngine, bucketed, recipe, trained, weights
from tests.training.updates.test_engine import with_soft

CPU = torch.device("cpu")


class ResidentEngine(RecordingEngine):
    """Engine that keeps the text on its device, and whose graphs are recordings."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.max_text_bytes = float("inf")


def check_batches(split: Split, max_tokens: int, n_batches: int = 25) -> None:
    """Compare gathered batches with those of the host, in order and in every element."""
    text = ResidentSplit(split, CPU)
    n_soft_targets = 0 if split.soft_targets is None else split.soft_targets.records["ids"].shape[1]
    for batch in bucketed(split, max_tokens).take(n_batches):
        assert isinstance(batch, PlannedBatch)
        static = StaticBatch(batch.shape, batch.source_width, n_soft_targets, CPU, text)
        static.load(batch)
        static.gather()
        buckets = Buckets.for_split(split, max_tokens)
        expected = buckets.pad(make_batch(split, batch.indices))
        assert batch.shape == expected.target_out.shape and batch.tokens == expected.tokens
        assert expected.source.shape[1] == (batch.shape[1] if split.window_overlap is None else 1)
        for ids, side in zip((static.source, *static.ids),
                             (expected.source, expected.target_in, expected.target_out)):
            assert np.array_equal(ids.numpy(), side)
        if n_soft_targets:
            ids, probabilities = static.soft_targets
            assert np.array_equal(ids.numpy(), expected.soft_targets.ids)
            assert np.array_equal(probabilities.numpy(), expected.soft_targets.probabilities)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=30),
       st.integers(1, 100))
def test_gathered_batches_are_those_of_the_host(lengths: list[tuple[int, int]],
                                                max_tokens: int) -> None:
    rng = np.random.default_rng(1)
    check_batches(Split.from_lists(*([rng.integers(4, 99, pair[side]).tolist() for pair in lengths]
                                     for side in (0, 1))), max_tokens)


@pytest.mark.parametrize("overlap", [0, 3, 9])
def test_gathered_windows_are_those_of_the_host(overlap: int) -> None:
    text = RaggedArray.from_lists([list(range(4, 60)), list(range(60, 75))])
    windows = text.windows(9, max(1, 9 - overlap))
    empty = RaggedArray.from_lists([[]] * len(windows))
    check_batches(Split.from_rows(empty, windows, Texts([], []), overlap), 40)


def test_gathered_soft_targets_are_those_of_the_host(corpus: Corpus) -> None:
    check_batches(with_soft(corpus), 200)


@pytest.mark.parametrize("changes", [{}, {"accumulate": 3, "optimizer": "soap"}], ids=str)
def test_updates_with_text_on_the_device_equal_others(corpus: Corpus,
                                                      changes: dict[str, Any]) -> None:
    """Recordings replay the gathering; they may not wait for the device."""
    how = recipe(max_tokens=300, dropout=0.2, **changes)
    host, losses = trained(CapturedEngine, corpus, how, tiny(width=8).block)
    resident, resident_losses = trained(ResidentEngine, corpus, how, tiny(width=8).block)
    assert resident_losses == losses
    assert torch.equal(weights(resident), weights(host))
    assert isinstance(resident, ResidentEngine) and resident.text is not None


def test_windows_of_a_language_model_have_one_source_token(tmp_path: Path) -> None:
    """With padded sources, the sequence of a decoder-only model would be twice as long."""
    corpus = corpus_of(TASKS["language-model"], tmp_path, window=12)
    how = recipe(max_tokens=100, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    block = model_for(TASKS["language-model"]).block
    selected, losses = trained(Engine, corpus, how, block, 9)
    resident, resident_losses = trained(ResidentEngine, corpus, how, block, 9)
    assert resident_losses == pytest.approx(losses, rel=1e-6)
    assert torch.allclose(weights(resident), weights(selected), atol=1e-5)
    assert isinstance(resident, ResidentEngine)
    assert {static.source.shape[1] for static in resident.inputs.values()} == {1}


def test_updates_with_text_on_the_device_do_not_wait_for_it(corpus: Corpus) -> None:
    how = recipe(max_tokens=300)
    engine, _ = trained(ResidentEngine, corpus, how, tiny(width=8).block, 1)
    stream = bucketed(corpus.train, how.max_tokens, 2)
    with CountSynchronizations() as synchronizations:
        for _ in range(8):
            engine.update(stream.take(1), 1e-2)
    assert not synchronizations.counts


@pytest.mark.parametrize("dropout", [0.05, 0.9])
@pytest.mark.full
def test_text_of_each_epoch_replaces_that_of_the_last(corpus: Corpus, dropout: float) -> None:
    """With a high rate the text grows beyond the room for it, and graphs are discarded."""
    how = recipe(max_tokens=600)
    engines: list[Engine] = []
    for engine_class in (CapturedEngine, ResidentEngine):
        engine, _ = trained(engine_class, corpus, how, tiny(width=8).block, 2)
        buckets = Buckets.for_split(corpus.train, how.max_tokens, corpus.spec.max_length)
        stream = BatchStream(corpus.train, how.max_tokens, 1,
                             lambda epoch: retokenize(corpus, dropout, 1, epoch), buckets)
        while stream.epoch < 2:
            engine.update(stream.take(1), 1e-2)
        engines.append(engine)
    assert torch.equal(weights(engines[0]), weights(engines[1]))
