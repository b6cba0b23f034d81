"""Soft targets: aligned with their tokens, and only for their corpus."""

import json
from pathlib import Path

import numpy as np
import pytest

from scalesearch.data import PAD, Corpus, DataSpec, load_corpus, make_batch
from scalesearch.data.corpus import hash_text
from scalesearch.data.soft_targets import metadata_file, record_dtype, record_offsets
from tests.data.conftest import Write
from tests.errors import refuses


@pytest.fixture
def soft(spec: DataSpec, cache: Path, tmp_path: Path) -> DataSpec:
    """``spec`` with soft targets: 3/4 for the token itself, 1/4 for its position modulo 60."""
    corpus = load_corpus(spec, cache)
    return spec.replace(soft_targets=str(written(corpus, tmp_path / "soft")))


def written(corpus: Corpus, file: Path, teacher: str = "abc") -> Path:
    batch = make_batch(corpus.train, np.arange(len(corpus.train)))
    labels = batch.target_out[batch.target_out != PAD]
    records = np.zeros(len(labels), record_dtype(2))
    records["ids"] = np.stack([labels, np.arange(len(labels)) % 60], 1)
    records["probabilities"] = 0.75, 0.25
    file.write_bytes(records.tobytes())
    metadata_file(file).write_text(
        json.dumps({"corpus": corpus.content_hash, "teacher": teacher, "top": 2, "dtype": "fp32"}))
    return file


def test_batch_has_soft_targets_of_its_tokens(spec: DataSpec, soft: DataSpec, cache: Path) -> None:
    corpus = load_corpus(soft, cache)
    rows = np.array([7, 3, 39, 0])
    batch = make_batch(corpus.train, rows)
    assert batch.soft_targets is not None
    real = batch.target_out != PAD
    assert (batch.soft_targets.ids[..., 0] == batch.target_out).all()
    assert (batch.soft_targets.probabilities.sum(-1) == real).all()
    for row, pair in enumerate(rows):
        first = record_offsets(corpus.train)[pair]
        assert (batch.soft_targets.ids[row, real[row], 1]
                == (first + np.arange(real[row].sum())) % 60).all()
    assert make_batch(corpus.validation, rows[1:2]).soft_targets is None
    assert make_batch(load_corpus(spec, cache).train, rows).soft_targets is None


def test_corpus_hash_depends_on_the_teacher(spec: DataSpec, soft: DataSpec, cache: Path,
                                     tmp_path: Path) -> None:
    real = load_corpus(spec, cache)
    other = spec.replace(soft_targets=str(written(real, tmp_path / "other", "xyz")))
    assert len({load_corpus(item, cache).content_hash for item in (spec, soft, other)}) == 3
    assert len({hash_text(item.with_absolute_paths()) for item in (spec, soft, other)}) == 3
    assert DataSpec.from_mapping(soft.model_dump()) == soft


def test_soft_targets_of_other_data_are_refused(soft: DataSpec, cache: Path, write: Write) -> None:
    with refuses("soft-targets-mismatch", key="data.soft_targets"):
        load_corpus(soft.replace(vocab=50), cache)
    with refuses("soft-targets-mismatch"):
        load_corpus(soft.replace(max_pairs=10), cache)


def test_missing_or_truncated_soft_targets_are_refused(soft: DataSpec, cache: Path) -> None:
    assert soft.soft_targets is not None
    file = Path(soft.soft_targets)
    content = file.read_bytes()
    damaged = (content[:-1], content[:8] + b"\xff\xff" + content[10:],
               content[:4] + b"\xff\xff\xff\x7f" + content[8:])
    # zeros simulate a file of which only the length survives a crash
    for bad in (b"", bytes(len(content)), *damaged):
        file.write_bytes(bad)
        with refuses("soft-targets-unfinished", file):
            load_corpus(soft, cache)
    facts = metadata_file(file).read_text()
    for top in (-1, 0, 10**15):
        metadata_file(file).write_text(facts.replace('"top": 2', f'"top": {top}'))
        with refuses("soft-targets-unfinished", file):
            load_corpus(soft, cache)
    metadata_file(file).write_text("{")
    with refuses("file-damaged", metadata_file(file)):
        load_corpus(soft, cache)
    metadata_file(file).unlink()
    with refuses("no-soft-targets", metadata_file(file), key="data.soft_targets"):
        load_corpus(soft, cache)
