"""Updates do not depend on how batches are split and grouped."""


import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.data import PAD, BatchStream, Split, make_batch
from scalesearch.data.soft_targets import SoftTargets, record_dtype, record_offsets
from scalesearch.nn import build_model
from scalesearch.training.hardware import Hardware, is_out_of_memory
from scalesearch.training.updates.engine import Engine, build_initial_model, split_batch
from tests.training.conftest import recipe, tiny


def engine(corpus, **changes) -> Engine:
    how = recipe(**changes)
    model = build_model(tiny(width=8).block, vocab=corpus.tokenizer.vocab_size, seed=1,
                        dtype=torch.float64)
    return Engine(model.train(), how, Hardware.from_recipe(how))


def after(corpus, groups: list[list[int]], parts: int = 1) -> dict[str, torch.Tensor]:
    """The weights after one update on pairs in these groups."""
    subject = engine(corpus)
    subject.batch_splits = parts
    loss = subject.update([make_batch(corpus.train, np.array(group)) for group in groups], 1e-2)
    return {"loss": loss, **subject.model.state_dict()}


def test_update_does_not_depend_on_the_grouping_of_batches(corpus) -> None:
    together = after(corpus, [[0, 1, 2, 3, 4, 5]])
    for split in ([[0, 1, 2], [3, 4, 5]], [[5], [3, 1, 0, 2], [4]]):
        separate = after(corpus, split)
        assert all(torch.allclose(together[name], separate[name], atol=1e-8) for name in together)


@pytest.mark.parametrize("parts", [2, 4, 16])
def test_update_does_not_depend_on_batch_splits(corpus, parts: int) -> None:
    together = after(corpus, [list(range(9))])
    separate = after(corpus, [list(range(9))], parts)
    assert all(torch.allclose(together[name], separate[name], atol=1e-8) for name in together)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 299), min_size=1, max_size=20), st.integers(1, 25))
def test_split_batch_keeps_pairs_and_removes_padding(corpus, rows: list[int], parts: int) -> None:
    batch = make_batch(corpus.train, np.array(rows))
    pieces = split_batch(batch, parts)
    assert len(pieces) == min(parts, len(rows))
    assert [int(i) for piece in pieces for i in piece.indices] == rows
    assert sum(piece.tokens for piece in pieces) == batch.tokens
    assert all((side[:, -1] != PAD).any() for p in pieces
               for side in (p.source, p.target_in, p.target_out))


def test_loss_ignores_padding(corpus) -> None:
    subject = engine(corpus)
    rows = np.arange(8)
    subject.model.eval()
    with torch.no_grad():
        together = subject.loss_sum(make_batch(corpus.train, rows), 0.0)
        alone = sum(subject.loss_sum(make_batch(corpus.train, rows[i : i + 1]), 0.0)
                    for i in range(8))
    assert together.item() == pytest.approx(alone.item())


def test_gradients_are_clipped(corpus) -> None:
    subject = engine(corpus, clip_norm=1e-3)
    subject.update([make_batch(corpus.train, np.arange(8))], 1e-2)
    norm = torch.stack([p.grad.norm() for p in subject.parameters if p.grad is not None]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-2)


def test_batch_stream_continues_from_any_position(corpus) -> None:
    first = BatchStream(corpus.train, 200, 5)
    second = BatchStream(corpus.train, 200, 5)
    drawn = [batch.indices.tolist() for batch in first.take(60)]
    assert first.epoch >= 1
    second.take(20)
    third = BatchStream(corpus.train, 200, 5)
    third.seek(second.epoch, second.index)
    assert [batch.indices.tolist() for batch in third.take(40)] == drawn[20:]


def test_is_out_of_memory_recognizes_errors() -> None:
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: not enough memory: you tried to "
                                         "allocate 9 bytes"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("out of memory"))


def test_rdrop_without_dropout_changes_nothing(corpus) -> None:
    """Without dropout, divergences are zero if rows are paired correctly."""
    batch = make_batch(corpus.train, np.arange(9))
    once = engine(corpus)
    twice = engine(corpus, rdrop=5.0)
    assert twice.loss_sum(batch, 0.1).item() == pytest.approx(once.loss_sum(batch, 0.1).item())
    once.update([batch], 1e-2)
    twice.update([batch], 1e-2)
    assert all(torch.allclose(left, other, atol=1e-8)
               for left, other in zip(once.model.state_dict().values(),
                                     twice.model.state_dict().values()))


def test_rdrop_reduces_the_divergence_of_passes(corpus) -> None:
    how = recipe(rdrop=50.0, dropout=0.3)
    separate = []
    for rdrop in (0.0, 50.0):
        subject = Engine(build_initial_model(tiny(width=16).block, corpus.tokenizer.vocab_size, how,
                                             1).train(), how.replace(rdrop=rdrop),
                         Hardware.from_recipe(how))
        for _ in range(25):
            subject.update([make_batch(corpus.train, np.arange(30))], 1e-2)
        separate.append(divergence(subject, make_batch(corpus.train, np.arange(30, 60))))
    assert 0 < separate[1] < separate[0] / 2


def divergence(subject: Engine, batch) -> float:
    """Divergence of two passes: increase of the loss with a larger rdrop."""
    losses = []
    for rdrop in (1.0, 2.0):
        torch.manual_seed(0)
        subject.recipe = subject.recipe.replace(rdrop=rdrop)
        losses.append(subject.loss_sum(batch, 0.0).item())
    return losses[1] - losses[0]


def with_soft(corpus, top: int = 3):
    """``corpus``' training split with made-up soft targets."""
    rng = np.random.default_rng(1)
    split = corpus.train
    records = np.zeros(int(record_offsets(split)[-1]), record_dtype(top))
    records["ids"] = rng.integers(corpus.tokenizer.vocab_size, size=(len(records), top))
    records["probabilities"] = rng.dirichlet(np.ones(top), len(records))
    soft_split = Split(split.source_ids, split.target_ids, lambda: split.texts)
    soft_split.soft_targets = SoftTargets(records,
                                        {"corpus": "", "teacher": "", "top": top, "dtype": "fp32"})
    return soft_split


def test_distillation_weight_mixes_losses(corpus) -> None:
    rows = np.arange(9)
    split = with_soft(corpus)
    losses = {share: engine(corpus, distillation_weight=share).loss_sum(make_batch(split, rows),
                                                                        0.1).item()
              for share in (0, 0.25, 1)}
    hard = engine(corpus).loss_sum(make_batch(corpus.train, rows), 0.1).item()
    assert losses[0] == hard != losses[1]
    assert losses[0.25] == pytest.approx(0.75 * losses[0] + 0.25 * losses[1])
    subject = engine(corpus, distillation_weight=1)
    subject.model.eval()  # validation uses the real labels
    assert subject.loss_sum(make_batch(split, rows), 0.1).item() == pytest.approx(hard)


@pytest.mark.parametrize("changes",
                         [{"distillation_weight": 0.7}, {"distillation_weight": 0.7, "rdrop": 2.0}])
def test_split_batches_keep_soft_targets(corpus, changes) -> None:
    batch = make_batch(with_soft(corpus), np.arange(9))
    weights = []
    for parts in (1, 4):
        subject = engine(corpus, **changes)
        subject.batch_splits = parts
        subject.update([batch], 1e-2)
        weights.append(subject.model.state_dict())
    assert all(torch.allclose(left, weights[1][name], atol=1e-7)
               for name, left in weights[0].items())
