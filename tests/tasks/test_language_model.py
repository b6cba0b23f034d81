"""Perplexity with sliding windows equals scoring each token."""

import math
from itertools import chain

import numpy as np
import pytest
import torch

from scalesearch.data import BOS, EOS, PAD, eval_batches
from scalesearch.nn import build_model
from scalesearch.tasks import TASKS
from scalesearch.tasks.language_model import count_words
from scalesearch.training import Recipe, train
from scalesearch.training.hardware import Hardware
from scalesearch.training.scoring.evaluate import DecodingOptions, evaluate_loss, score_split
from scalesearch.training.updates.engine import Engine
from tests.errors import refuses
from tests.tasks.small import corpus_of, lines, model_for

TASK = TASKS["language-model"]
RECIPE = Recipe(steps=1, threads=1, device="cpu", precision="fp32")


def engine_for(corpus) -> Engine:
    model = build_model(model_for(TASK).block, vocab=corpus.tokenizer.vocab_size, seed=1,
                        dtype=torch.float64)
    return Engine(model.eval(), RECIPE, Hardware.from_recipe(RECIPE))


def stream_of(corpus, split: str) -> list[int]:
    return [token for row in corpus.tokenizer.encode(lines(split)) for token in [*row, EOS]]


def reference_total_loss(model, stream: list[int], window: int, stride: int) -> float:
    """The sum of -log p; each token is scored separately with the context of its window."""
    total = 0.0
    scored = 0
    for start in range(0, len(stream), stride):
        for position in range(scored, min(start + window, len(stream))):
            read = torch.tensor([[BOS, *stream[start:position]]])
            logits = model(torch.tensor([[EOS]]), read)[0, -1]
            total -= float(torch.log_softmax(logits, -1)[stream[position]])
        scored = max(scored, min(start + window, len(stream)))
    assert scored == len(stream)
    return total


@pytest.mark.parametrize(("window", "stride"), [(8, 8), (8, 3), (8, 1), (500, 100)])
def test_loss_equals_scoring_each_token(tmp_path, window: int, stride: int) -> None:
    corpus = corpus_of(TASK, tmp_path, window=window, stride=stride)
    engine = engine_for(corpus)
    stream = stream_of(corpus, "validation")
    with torch.inference_mode():
        expected = reference_total_loss(engine.model, stream, window, stride)
    assert evaluate_loss(engine, corpus.validation) * len(stream) == pytest.approx(
        expected, rel=1e-9)
    result = score_split(engine, corpus, "validation", DecodingOptions(1))
    count = sum(len(line.split()) for line in lines("validation")) + len(lines("validation"))
    assert result["perplexity"] == pytest.approx(math.exp(expected / len(stream)))
    assert result["word_perplexity"] == pytest.approx(math.exp(expected / count))
    assert f"window:{window}|stride:{stride}|tokens:{len(stream)}|words:{count}" in result[
        "perplexity_signature"]


def test_windows_with_full_stride_are_disjoint(tmp_path) -> None:
    corpus = corpus_of(TASK, tmp_path, window=8, stride=8)
    rows = [row.tolist() for row in corpus.validation.target_ids]
    assert list(chain.from_iterable(rows)) == stream_of(corpus, "validation") and {
        len(row) for row in rows[:-1]} == {8}


@pytest.mark.parametrize("stride", [1, 5, 12])
def test_each_token_is_scored_once_with_context(tmp_path, stride: int) -> None:
    corpus = corpus_of(TASK, tmp_path, window=12, stride=stride)
    stream = stream_of(corpus, "test")
    recorded = []
    for batch in eval_batches(corpus.test, 100):
        for row, place in zip(batch.target_out, batch.indices):
            scored = np.flatnonzero(row != PAD)
            recorded += [place * stride + column for column in scored]
            assert all(row[column] == stream[place * stride + column] for column in scored)
            assert place == 0 or scored[0] >= 12 - stride
    assert sorted(recorded) == list(range(len(stream)))


def test_training_windows_do_not_overlap(tmp_path) -> None:
    corpus = corpus_of(TASK, tmp_path, window=12, stride=5)
    assert corpus.train.window_overlap == 0 and len(
        corpus.train.target_ids.flat) == len(stream_of(corpus, "train"))
    assert corpus.counts["train"]["empty"] == 1
    assert corpus.counts["train"]["target_tokens"] == len(corpus.train.target_ids.flat)


def test_count_words_counts_ends_of_lines() -> None:
    assert count_words(["a b c", " d  e "]) == 7


def test_other_model_type_is_refused_before_writing(tmp_path) -> None:
    with refuses("other-model", "decoder-only", "encoder-decoder", key="space"):
        train(model_for(TASKS["translation"]), corpus_of(TASK, tmp_path), RECIPE, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_validate_metric_is_refused(tmp_path) -> None:
    with refuses("nothing-to-score", key="recipe.validate_metric"):
        train(model_for(TASK), corpus_of(TASK, tmp_path), Recipe(steps=1, validate_metric=True),
              tmp_path / "run")
