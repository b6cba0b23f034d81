"""Word-level distillation: a teacher's probabilities at every place of the training pairs (Kim & Rush 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from scalesearch.data import PAD, Batch, Corpus, Split, Tokenizer, eval_batches, load_corpus
from scalesearch.data.soft import SoftFacts, facts_file, places, record
from scalesearch.errors import UserError
from scalesearch.train.checkpoint import read_ensemble
from scalesearch.train.hardware import Hardware
from scalesearch.train.recipe import Recipe
from scalesearch.train.scoring.distill import check_settings, hash_of_teachers
from scalesearch.train.scoring.evaluate import with_memory

if TYPE_CHECKING:
    from scalesearch.data import DataSpec

CHUNK = 2000  # pairs between saves
TOKENS = 2048  # in a batch, padding included

Tell = Callable[[int, int], None]


def soften_data(teachers: Sequence[Path], data: DataSpec, out: Path, top: int,
                tell: Tell = lambda done, total: None, cache: Path | None = None) -> dict[str, Any]:
    """Writes the soft targets of the training pairs of ``data`` by a finished training, or several as one; resumable.

    Returns:
        the number of ``pairs`` and of ``places``, and :class:`SoftFacts`.

    Raises:
        UserError: one of ``teachers`` is no finished training, or not of these data's vocabulary; the data have no
            pairs; ``out`` holds other soft targets.
    """
    if data.form == "text":
        raise UserError(f"data: task: {data.task} has no pairs", key="data.task", code="no-pairs",
                        help="soft targets are for tasks that translate or correct")
    data = replace(data, soft_targets=None)
    trained, hardware = read_ensemble(teachers), Hardware.of(Recipe(steps=1))
    own = trained.architecture.vocab  # where it has a vocabulary of its own, data that name none have that
    corpus = load_corpus(data if data.vocab or data.tokenizer else data.at(own), cache)
    _check_vocabulary(trained.tokenizer, corpus, top, teachers)
    model = trained.model.to(hardware.device)
    model.set_attention(hardware.attention)
    facts: SoftFacts = {"corpus": corpus.hash, "teacher": hash_of_teachers(teachers), "top": top,
                        "dtype": hardware.dtype}
    count = soften(corpus.train, out, facts, lambda batch: likeliest(model, batch, top, hardware), tell)
    return {"pairs": len(corpus.train), "places": count, **facts}


def _check_vocabulary(theirs: Tokenizer, corpus: Corpus, top: int, teachers: Sequence[Path]) -> None:
    if theirs != corpus.tokenizer:
        raise UserError(f"{teachers[0]} has another vocabulary than the data",
                        help="train it on the same data and vocab, or have it translate with `scalesearch distill`",
                        code="teacher-of-another-vocabulary")
    if not 1 <= top <= theirs.vocab_size:
        raise UserError(f"{top} likeliest tokens of a vocabulary of {theirs.vocab_size:,}", help="8 is enough for most",
                        code="out-of-range")


def soften(split: Split, out: Path, facts: SoftFacts, teach: Callable[[Batch], np.ndarray],
           tell: Tell = lambda done, total: None) -> int:
    """Writes the records of all pairs of ``split`` to ``out``; goes on where an earlier run stopped.

    Args:
        teach: of a batch, the records (N,) of its real target places, row by row.

    Returns:
        the number of records.

    Raises:
        UserError: ``out`` holds those of another teacher or other pairs.
    """
    first, layout = places(split), record(facts["top"])
    check_settings(facts_file(out), cast("dict[str, Any]", facts), [out], "soft targets")
    out.touch()
    with out.open("r+b") as file:
        whole = out.stat().st_size // layout.itemsize
        start = int(np.searchsorted(first, whole, side="right")) - 1
        file.truncate(int(first[start]) * layout.itemsize)
        file.seek(0, 2)
        for begin in range(start, len(split), CHUNK):
            some = np.arange(begin, min(begin + CHUNK, len(split)))
            file.write(_records(split, some, layout, teach).tobytes())
            file.flush()
            tell(int(some[-1]) + 1, len(split))
    return int(first[-1])


def _records(split: Split, some: np.ndarray, layout: np.dtype[np.void],
             teach: Callable[[Batch], np.ndarray]) -> np.ndarray:
    """Records of neighbouring pairs, in their order."""
    part = Split.of_rows(split.source_ids.take(some), split.target_ids.take(some), [], [])
    first = places(part)

    def run(max_tokens: int) -> np.ndarray:
        found = np.zeros(int(first[-1]), layout)
        for batch in eval_batches(part, max_tokens):
            real = batch.target_out != PAD
            where = (first[batch.indices][:, None] + np.arange(real.shape[1]))[real]
            found[where] = teach(batch)
        return found

    return with_memory(run, TOKENS)


def likeliest(model: Any, batch: Batch, top: int, hardware: Hardware) -> np.ndarray:
    """Records (N,) of the ``top`` likeliest tokens at each real target place of ``batch``; they sum to 1."""
    real = np.flatnonzero(batch.target_out != PAD)
    with torch.inference_mode(), hardware.autocast():
        logits = model(hardware.tensor(batch.source), hardware.tensor(batch.target_in)).flatten(0, 1)
        best = logits.index_select(0, hardware.tensor(real)).float().topk(top)
    found = np.zeros(len(real), record(top))
    found["ids"] = best.indices.cpu().numpy()
    found["probabilities"] = best.values.softmax(-1).cpu().numpy()
    return found
