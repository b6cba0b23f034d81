"""Word-level distillation: a teacher's probabilities (Kim & Rush 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from scalesearch.data import PAD, Batch, DataSpec, Split, eval_batches, load_corpus
from scalesearch.data.soft_targets import (
    SoftTargetMetadata,
    metadata_file,
    record_dtype,
    record_offsets,
)
from scalesearch.errors import UserError, option
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.tasks import TASKS, Texts
from scalesearch.training.checkpoint import read_ensemble
from scalesearch.training.hardware import Hardware
from scalesearch.training.recipe import Recipe
from scalesearch.training.scoring.distill import check_settings, hash_teachers
from scalesearch.training.scoring.evaluate import ProgressFunction, retry_with_smaller_batches

SAVE_INTERVAL = 2000  # pairs between saves
BATCH_TOKENS = 2048  # tokens per batch, with padding


def write_soft_targets(teachers: Sequence[Path], data: DataSpec, out: Path, top_k: int,
                       report_progress: ProgressFunction = lambda done, total: None,
                       cache: Path | None = None) -> dict[str, Any]:
    """Write the soft targets of the training pairs of ``data``; resumable.

    Args:
        teachers: folders of finished training runs; several form an ensemble.
        top_k: number of tokens per position.

    Returns:
        The number of ``pairs`` and of ``tokens``, and :class:`SoftTargetMetadata`.

    Raises:
        UserError: a teacher is not a finished training run or has another vocabulary than the data;
            the data have no pairs; ``out`` holds other soft targets.
    """
    if TASKS[data.task].score is None:
        raise UserError(f"data: task: {data.task} has no pairs", key="data.task", code="no-pairs",
                        help="soft targets are for tasks that translate or correct")
    data = data.replace(soft_targets=None)
    teacher = read_ensemble(teachers)
    hardware = Hardware.from_recipe(Recipe(steps=1))
    if not data.vocab and not data.tokenizer:
        data = data.with_vocab(*teacher.architecture.vocab_sizes)
    corpus = load_corpus(data, cache)
    if teacher.tokenizer != corpus.tokenizer:
        raise UserError(f"{teachers[0]} has another vocabulary than the data",
                        help="train it on "
                        "the same data and vocab, or use `scalesearch distill --targets text`",
                        code="teacher-vocab-mismatch")
    vocab_size = teacher.tokenizer.target.vocab_size
    if not 1 <= top_k <= vocab_size:
        raise UserError(f"{option('top-k', top_k)}: expected 1 to {vocab_size:,}, the size of the "
                        "vocabulary", help="8 is enough in most cases", code="out-of-range")
    model = teacher.model.to(hardware.device)
    model.set_attention(hardware.attention_kernel)
    metadata: SoftTargetMetadata = {"corpus": corpus.content_hash,
                                    "teacher": hash_teachers(teachers), "top": top_k,
                                    "dtype": hardware.dtype}
    count = write_soft_target_records(corpus.train, out, metadata,
                                      lambda batch: top_k_records(model, batch, top_k, hardware),
                                      report_progress)
    return {"pairs": len(corpus.train), "tokens": count, **metadata}


def write_soft_target_records(split: Split, out: Path, metadata: SoftTargetMetadata,
                              predict_records: Callable[[Batch], np.ndarray],
                              report_progress: ProgressFunction = lambda done, total: None) -> int:
    """Write the records of ``split`` to ``out``; an earlier run is continued.

    Args:
        predict_records: returns the records (N,) of the target tokens of a batch, row by row,
            without padding.

    Returns:
        The number of records.

    Raises:
        UserError: ``out`` holds records of another teacher or of other pairs.
    """
    first = record_offsets(split)
    dtype = record_dtype(metadata["top"])
    check_settings(metadata_file(out), cast("dict[str, Any]", metadata), [out], "soft targets")
    out.touch()
    with out.open("r+b") as file:
        n_complete = out.stat().st_size // dtype.itemsize
        start = int(np.searchsorted(first, n_complete, side="right")) - 1
        file.truncate(int(first[start]) * dtype.itemsize)
        file.seek(0, 2)
        report_progress(start, len(split))
        for begin in range(start, len(split), SAVE_INTERVAL):
            indices = np.arange(begin, min(begin + SAVE_INTERVAL, len(split)))
            file.write(_compute_records(split, indices, dtype, predict_records).tobytes())
            file.flush()
            report_progress(int(indices[-1]) + 1, len(split))
    return int(first[-1])


def _compute_records(split: Split, indices: np.ndarray, dtype: np.dtype[np.void],
                     predict_records: Callable[[Batch], np.ndarray]) -> np.ndarray:
    """Compute the records (N,) of the pairs at ``indices``, in their order."""
    part = Split.from_rows(split.source_ids.take(indices), split.target_ids.take(indices),
                           Texts([], []))
    first = record_offsets(part)

    def run(max_tokens: int) -> np.ndarray:
        records = np.zeros(int(first[-1]), dtype)
        for batch in eval_batches(part, max_tokens):
            is_token = batch.target_out != PAD
            positions = (first[batch.indices][:, None] + np.arange(is_token.shape[1]))[is_token]
            records[positions] = predict_records(batch)
        return records

    return retry_with_smaller_batches(run, BATCH_TOKENS)


def top_k_records(model: Seq2SeqModel, batch: Batch, top_k: int, hardware: Hardware) -> np.ndarray:
    """Compute records (N,) of the ``top_k`` most probable tokens.

    There is one record per target token of ``batch``; its probabilities sum to 1.
    """
    positions = np.flatnonzero(batch.target_out != PAD)
    with torch.inference_mode(), hardware.autocast():
        logits = model(hardware.to_device(batch.source),
                       hardware.to_device(batch.target_in)).flatten(0, 1)
        best = logits.index_select(0, hardware.to_device(positions)).float().topk(top_k)
    records = np.zeros(len(positions), record_dtype(top_k))
    records["ids"] = best.indices.cpu().numpy()
    records["probabilities"] = best.values.softmax(-1).cpu().numpy()
    return records
