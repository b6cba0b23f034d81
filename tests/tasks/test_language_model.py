"""Perplexity with sliding windows equals scoring each token."""

import json
import math
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from scalesearch import load
from scalesearch.blocks.core import UNK
from scalesearch.cli import generate as generate_verb
from scalesearch.cli import score as score_verb
from scalesearch.data import BOS, EOS, PAD, DataSpec, eval_batches, training_batches
from scalesearch.data.batching import Buckets
from scalesearch.data.sources import read_sentences
from scalesearch.nn import build_model
from scalesearch.nn.decode import sample_tokens
from scalesearch.tasks import TASKS, Texts
from scalesearch.tasks.language_model import count_bytes, count_words
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
    n_bytes = sum(len(line.encode()) + 1 for line in lines("validation"))
    assert result["bits_per_byte"] == pytest.approx(expected / n_bytes / math.log(2))
    signature = result["perplexity_signature"]
    assert f"window:{window}|stride:{stride}|tokens:{len(stream)}|words:{count}" in signature
    assert signature.endswith(f"bytes:{n_bytes}")


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


@pytest.mark.parametrize("has_buckets", [False, True])
def test_batches_have_as_many_windows_as_fit(tmp_path, has_buckets: bool) -> None:
    corpus = corpus_of(TASK, tmp_path, window=16, stride=16)
    buckets = Buckets.for_split(corpus.train, 64) if has_buckets else None
    batches = training_batches(corpus.train, 64, buckets=buckets)
    assert max(map(len, batches)) == 4
    assert {batch.target_out.shape for batch in batches if len(batch) == 4} == {(4, 16)}
    assert corpus.mean_lengths == (1, 16)


def test_count_words_counts_ends_of_lines() -> None:
    assert count_words(["a b c", " d  e "]) == 7


def test_bytes_are_those_of_the_tokenized_text() -> None:
    """Tokenizers read a run of blanks as one, and umlauts have two bytes."""
    assert count_bytes(["a  b", " ü\t", ""]) == 4 + 4 + 1
    metrics = TASK.score_loss(math.log(2), 18, Texts([], ["a  b", " ü\t", ""]), SimpleNamespace(
        window=8, stride=4))
    assert metrics["bits_per_byte"] == pytest.approx(18 / 9)


def test_builtin_text_is_the_english_side() -> None:
    spec = DataSpec(task="language-model", builtin="grammar", pairs=30, vocab=80)
    text = read_sentences(spec)
    pairs = read_sentences(DataSpec(builtin="grammar", pairs=30))
    assert spec.window and all(text[split].target == pairs[split].source and not text[split].source
                               for split in pairs)
    assert len(text["train"].target) == 30


@pytest.mark.parametrize("changes", [{}, {"decoder__window": 3},
                                     {"decoder__mixer": "average", "decoder__mixer__dims": 4},
                                     {"decoder__mixer": "ssru"},
                                     {"decoder__mixer": "linear_attention",
                                      "decoder__mixer__heads": 2, "decoder__mixer__key_dim": 3},
                                     {"decoder__mixer": "latent", "embedding__positions": "none",
                                      "decoder__mixer__heads": 2, "decoder__mixer__rank": 5,
                                      "decoder__mixer__head_dim": 3,
                                      "decoder__mixer__rotary_dim": 4,
                                      "decoder__mixer__value_dim": 4,
                                      "decoder__mixer__query_rank": 0},
                                     {"decoder__rotary": True, "embedding__positions": "none"}])
def test_samples_follow_the_model_without_a_cache(changes: dict[str, object]) -> None:
    """Greedy samples are the best tokens after the last tokens of the window, read from BOS."""
    window = 9
    model = build_model(model_for(TASK, **changes).block, vocab=40, seed=3,
                        dtype=torch.float64).eval()
    prompt = [5, 9, 7, 30]
    tokens = sample_tokens(model, prompt, 20, window, temperature=0)
    stream = [*prompt]
    start = 0
    for token in tokens:
        if len(stream) - start + 1 > window:
            start = len(stream) - window // 2
        with torch.no_grad():
            logits = model(torch.tensor([[EOS]]), torch.tensor([[BOS, *stream[start:]]]))[0, -1]
        logits[[PAD, UNK, BOS]] = -torch.inf
        assert token == int(logits.argmax())
        stream.append(token)
    assert sample_tokens(model, prompt, 20, window, 0.7, top_k=1) == tokens
    long_prompt = sample_tokens(model, [8] * 30 + prompt, 5, window, temperature=0)
    assert long_prompt == sample_tokens(model, ([8] * 30 + prompt)[-(window // 2):], 5, window,
                                        temperature=0)
    without_context = sample_tokens(model, prompt, 3, window=1, temperature=0)
    assert without_context == sample_tokens(model, [8], 3, window=1, temperature=0)


@pytest.mark.full
def test_samples_depend_on_seed_and_temperature() -> None:
    model = build_model(model_for(TASK).block, vocab=40, seed=3, dtype=torch.float64).eval()
    samples = [sample_tokens(model, [5], 60, 16, seed=seed) for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]
    assert not {PAD, UNK, BOS} & {*samples[0], *samples[2]}
    hot = sample_tokens(model, [5], 400, 16, temperature=50.0)
    cold = sample_tokens(model, [5], 400, 16, temperature=0.1)
    assert len(set(hot)) > len(set(cold))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_any_text_is_scored_and_continued(tmp_path, precision: str) -> None:
    corpus = corpus_of(TASK, tmp_path)
    folder = tmp_path / "run"
    recipe = Recipe(steps=30, threads=1, device="cpu", precision=precision, max_tokens=200)
    result = train(model_for(TASK), corpus, recipe, folder)
    text = tmp_path / "test.txt"
    scored = CliRunner().invoke(score_verb.command, [str(folder), "--text", str(text), "--json"])
    assert scored.exit_code == 0, scored.output
    scores = json.loads(scored.stdout)["models"][0]
    for name in ("loss", "perplexity", "word_perplexity", "bits_per_byte"):
        assert scores[name] == pytest.approx(result.metrics["test"][name], rel=1e-5), name
    assert scores["unknown_tokens"] == 0
    table = CliRunner().invoke(score_verb.command, [str(folder), str(folder), "--text", str(text)])
    assert table.exit_code == 0 and f"{scores['bits_per_byte']:.4f}" in table.output

    def generate(*options: str, text: str = "") -> str:
        done = CliRunner().invoke(generate_verb.command, [str(folder), *options], input=text)
        assert done.exit_code == 0, done.output
        return done.stdout

    prompt = "the big dog\none two"
    greedy = json.loads(generate(prompt, "--temperature", "0", "--tokens", "30", "--json"))
    assert greedy["prompt"] == prompt and greedy["continuation"]
    assert generate("--temperature", "0", "--tokens", "30", text=prompt).rstrip("\n") == (
        prompt + greedy["continuation"]).rstrip("\n")
    model = load(folder)
    assert model.generate(prompt, 30, temperature=0) == greedy["continuation"]
    assert model.generate("", 30, seed=1) != model.generate("", 30, seed=2)
    assert model.score_text(text)["loss"] == pytest.approx(scores["loss"])
    with refuses("nothing-to-score"):
        model.score_text(["", " "])
    with refuses("other-task", str(folder), "`generate`", "`score_text`"):
        load(folder).translate("one")


def test_texts_need_a_language_model(tmp_path) -> None:
    task = TASKS["translation"]
    recipe = Recipe(steps=1, threads=1, device="cpu", precision="fp32", beam=1)
    train(model_for(task), corpus_of(task, tmp_path), recipe, tmp_path / "run")
    for call in (lambda model: model.generate("one"), lambda model: model.score_text(["one"])):
        with refuses("other-task", "translation"):
            call(load(tmp_path / "run"))


@pytest.mark.parametrize(("options", "code"), [
    (["--text", "a.txt", "--source", "b"], "options-conflict"),
    (["--source", "b"], "option-missing"), ([], "option-missing")])
def test_score_needs_a_text_or_pairs(options: list[str], code: str) -> None:
    with refuses(code):
        raise CliRunner().invoke(score_verb.command, ["run", *options]).exception


def test_other_model_type_is_refused_before_writing(tmp_path) -> None:
    with refuses("other-model", "decoder-only", "encoder-decoder", key="space"):
        train(model_for(TASKS["translation"]), corpus_of(TASK, tmp_path), RECIPE, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_validate_metric_is_refused(tmp_path) -> None:
    with refuses("nothing-to-score", key="recipe.validate_metric"):
        train(model_for(TASK), corpus_of(TASK, tmp_path), Recipe(steps=1, validate_metric=True),
              tmp_path / "run")
