"""Soft targets of a teacher: equal to the model, resumable, from one teacher only."""

from pathlib import Path

import numpy as np
import pytest
import torch

from scalesearch.data import PAD, Batch, make_batch
from scalesearch.data.soft_targets import (
    SoftTargetMetadata,
    SoftTargets,
    record_dtype,
    record_offsets,
)
from scalesearch.nn import build_model
from scalesearch.nn.ensemble import Ensemble
from scalesearch.training.hardware import Hardware
from scalesearch.training.scoring import soft_targets as module
from scalesearch.training.scoring.soft_targets import top_k_records, write_soft_target_records
from tests.errors import refuses
from tests.training.conftest import recipe, tiny

METADATA: SoftTargetMetadata = {"corpus": "c", "teacher": "t", "top": 3, "dtype": "fp32"}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAVE_INTERVAL", 70)


def models(corpus, count: int) -> list[torch.nn.Module]:
    return [build_model(tiny(width=8 * seed).block, vocab=corpus.tokenizer.vocab_size,
                        seed=seed).eval() for seed in range(1, count + 1)]


def position_records(batch: Batch) -> np.ndarray:
    """Records with pair, position and label, by which a test recognizes them."""
    real = batch.target_out != PAD
    result = np.zeros(int(real.sum()), record_dtype(3))
    result["probabilities"] = 0.5, 0.25, 0.25
    result["ids"] = np.stack([np.broadcast_to(batch.indices[:, None], real.shape)[real],
                             np.broadcast_to(np.arange(real.shape[1]), real.shape)[real],
                             batch.target_out[real]], 1)
    return result


def test_each_target_token_has_a_record(corpus, tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    count = write_soft_target_records(corpus.train, tmp_path / "soft", METADATA, position_records,
                                      lambda *facts: progress.append(facts))
    assert count == len(corpus.train.target_ids.flat) + 300
    assert progress == [(done, 300) for done in (0, 70, 140, 210, 280, 300)]
    soft = SoftTargets.read(tmp_path / "soft", "c", corpus.train, 300)
    batch = make_batch(corpus.train, np.array([299, 5, 70, 141]))
    result = soft.batch(corpus.train, batch.indices)
    real = batch.target_out != PAD
    assert (result.ids[..., 2] == batch.target_out).all()
    assert (result.ids[real][:, 0]
            == (np.broadcast_to(batch.indices[:, None], real.shape) % 70)[real]).all()
    assert (result.ids[..., 1] == np.where(real, np.arange(real.shape[1]), 0)).all()


@pytest.mark.parametrize("count", [1, 2])
def test_top_k_records_equal_the_model(corpus, count: int) -> None:
    members = models(corpus, count)
    teacher = members[0] if count == 1 else Ensemble(members)
    batch = make_batch(corpus.train, np.array([3, 200, 7]))
    result = top_k_records(teacher, batch, 3,
                          Hardware.from_recipe(recipe(precision="fp32", device="cpu")))
    with torch.inference_mode():
        member_probabilities = [member(torch.from_numpy(batch.source),
                       torch.from_numpy(batch.target_in)).softmax(-1) for member in members]
    best = torch.stack(member_probabilities).mean(0)[
        torch.from_numpy(batch.target_out != PAD)].topk(3)
    assert (result["ids"] == best.indices.numpy()).all()
    shares = best.values / best.values.sum(-1, keepdim=True)
    # records have half precision
    assert np.allclose(result["probabilities"], shares.numpy(), atol=1e-3)


def test_interrupted_soft_targets_are_continued(corpus, tmp_path: Path) -> None:
    calls: list[int] = []

    def stop(batch: Batch) -> np.ndarray:
        calls.append(len(batch))
        if sum(calls) > 150:
            raise KeyboardInterrupt
        return position_records(batch)

    whole = tmp_path / "whole"
    file = tmp_path / "soft"
    write_soft_target_records(corpus.train, whole, METADATA, position_records)
    with pytest.raises(KeyboardInterrupt):
        write_soft_target_records(corpus.train, file, METADATA, stop)
    assert file.stat().st_size == record_offsets(corpus.train)[140] * record_dtype(3).itemsize
    n_bytes = file.stat().st_size
    with file.open("ab") as stream:  # an incomplete chunk of a killed process
        stream.write(whole.read_bytes()[n_bytes : n_bytes + 13])
    batch_sizes: list[int] = []

    def resumed(batch: Batch) -> np.ndarray:
        batch_sizes.append(len(batch))
        return position_records(batch)

    write_soft_target_records(corpus.train, file, METADATA, resumed)
    assert file.read_bytes() == whole.read_bytes() and sum(batch_sizes) == 160
    with refuses("other-settings", "teacher"):
        write_soft_target_records(corpus.train, file, METADATA | {"teacher": "another"},
                                  position_records)
