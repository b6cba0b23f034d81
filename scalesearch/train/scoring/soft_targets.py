"""Word-level distillation: a teacher's probabilities at every place of the training pairs (Kim & Rush 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from scalesearch.data import PAD, Batch, Corpus, Split, Tokenizer, eval_batches, load_corpus
from scalesearch.data.soft_targets import SoftTargetMetadata, metadata_file, record_dtype, record_offsets
from scalesearch.errors import UserError
from scalesearch.train.checkpoint import read_ensemble
from scalesearch.train.hardware import Hardware
from scalesearch.train.recipe import Recipe
from scalesearch.train.scoring.distill import check_settings, hash_teachers
from scalesearch.train.scoring.evaluate import retry_with_smaller_batches

if TYPE_CHECKING:
    from scalesearch.data import DataSpec

SAVE_INTERVAL = 2000  # pairs between saves
BATCH_TOKENS = 2048  # in a batch, padding included

ProgressFunction = Callable[[int, int], None]


def write_soft_targets(teachers: Sequence[Path], data: DataSpec, out: Path, top_k: int,
                       report_progress: ProgressFunction = lambda done, total: None,
                       cache: Path | None = None) -> dict[str, Any]:
    """Writes the soft targets of the training pairs of ``data`` by a finished training, or several as one; resumable.

    Returns:
        the number of ``pairs`` and of ``places``, and :class:`SoftTargetMetadata`.

    Raises:
        UserError: one of ``teachers`` is no finished training, or not of these data's vocabulary;
            the data have no
            pairs; ``out`` holds other soft targets.
    """
    if data.file_format == "text":
        raise UserError(f"data: task: {data.task} has no pairs", key="data.task", code="no-pairs",
                        help="soft targets are for tasks that translate or correct")
    data = replace(data, soft_targets=None)
    trained = read_ensemble(teachers)
    hardware = Hardware.from_recipe(Recipe(steps=1))
    # where it has a vocabulary of its own, data that name none have that
    own = trained.architecture.vocab
    corpus = load_corpus(data if data.vocab or data.tokenizer else data.with_vocab(own), cache)
    _check_vocabulary(trained.tokenizer, corpus, top_k, teachers)
    model = trained.model.to(hardware.device)
    model.set_attention(hardware.attention_kernel)
    facts: SoftTargetMetadata = {"corpus": corpus.content_hash, "teacher": hash_teachers(teachers),
                                 "top": top_k, "dtype": hardware.dtype}
    count = write_soft_target_records(corpus.train, out, facts,
                                      lambda batch: top_k_records(model, batch, top_k, hardware),
                                      report_progress)
    return {"pairs": len(corpus.train), "places": count, **facts}


def _check_vocabulary(theirs: Tokenizer, corpus: Corpus, top: int,
                      teachers: Sequence[Path]) -> None:
    if theirs != corpus.tokenizer:
        raise UserError(f"{teachers[0]} has another vocabulary than the data",
                        help="train it on "
                        "the same data and vocab, or have it translate with `scalesearch distill`",
                        code="teacher-vocab-mismatch")
    if not 1 <= top <= theirs.vocab_size:
        raise UserError(f"{top} likeliest tokens of a vocabulary of {theirs.vocab_size:,}",
                        help="8 is enough for most", code="out-of-range")


def write_soft_target_records(split: Split, out: Path, metadata: SoftTargetMetadata,
                              predict_records: Callable[[Batch], np.ndarray],
                              report_progress: ProgressFunction = lambda done, total: None) -> int:
    """Writes the records of all pairs of ``split`` to ``out``; goes on where an earlier run stopped.

    Args:
        predict_records: of a batch, the records (N,) of its real target places, row by row.

    Returns:
        the number of records.

    Raises:
        UserError: ``out`` holds those of another teacher or other pairs.
    """
    first = record_offsets(split)
    layout = record_dtype(metadata["top"])
    check_settings(metadata_file(out), cast("dict[str, Any]", metadata), [out], "soft targets")
    out.touch()
    with out.open("r+b") as file:
        whole = out.stat().st_size // layout.itemsize
        start = int(np.searchsorted(first, whole, side="right")) - 1
        file.truncate(int(first[start]) * layout.itemsize)
        file.seek(0, 2)
        for begin in range(start, len(split), SAVE_INTERVAL):
            some = np.arange(begin, min(begin + SAVE_INTERVAL, len(split)))
            file.write(_compute_records(split, some, layout, predict_records).tobytes())
            file.flush()
            report_progress(int(some[-1]) + 1, len(split))
    return int(first[-1])


def _compute_records(split: Split, some: np.ndarray, layout: np.dtype[np.void],
             teach: Callable[[Batch], np.ndarray]) -> np.ndarray:
    """Records of neighboring pairs, in their order."""
    part = Split.from_rows(split.source_ids.take(some), split.target_ids.take(some), [], [])
    first = record_offsets(part)

    def run(max_tokens: int) -> np.ndarray:
        found = np.zeros(int(first[-1]), layout)
        for batch in eval_batches(part, max_tokens):
            real = batch.target_out != PAD
            where = (first[batch.indices][:, None] + np.arange(real.shape[1]))[real]
            found[where] = teach(batch)
        return found

    return retry_with_smaller_batches(run, BATCH_TOKENS)


def top_k_records(model: Any, batch: Batch, top_k: int, hardware: Hardware) -> np.ndarray:
    """Records (N,) of the ``top_k`` likeliest tokens at each real target place of ``batch``; they sum to 1."""
    real = np.flatnonzero(batch.target_out != PAD)
    with torch.inference_mode(), hardware.autocast():
        logits = model(hardware.to_device(batch.source),
                       hardware.to_device(batch.target_in)).flatten(0, 1)
        best = logits.index_select(0, hardware.to_device(real)).float().topk(top_k)
    found = np.zeros(len(real), record_dtype(top_k))
    found["ids"] = best.indices.cpu().numpy()
    found["probabilities"] = best.values.softmax(-1).cpu().numpy()
    return found
