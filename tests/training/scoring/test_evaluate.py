"""Scores equal sacreBLEU, averages are means, and order is kept."""

import math
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import sacrebleu
import torch

from scalesearch.data import Split, eval_batches, load_corpus
from scalesearch.data.batching import decoding_batches
from scalesearch.export.translator import Translator
from scalesearch.nn import build_model
from scalesearch.nn.decode import default_max_lengths
from scalesearch.tasks.translation import bleu_chrf_scores, tokenized_bleu
from scalesearch.training import read_checkpoint, train
from scalesearch.training.hardware import Hardware, TrainingFailedError
from scalesearch.training.input_files import load_data, load_data_spec
from scalesearch.training.scoring.distill import write_distilled_data
from scalesearch.training.scoring.evaluate import (
    DecodingOptions,
    check_lengths,
    perplexity,
    resolve_decoding,
    retry_with_smaller_batches,
    score_split,
    tokens_per_character,
    translate,
)
from scalesearch.training.updates.averaging import WeightSnapshots
from scalesearch.training.updates.captured import build_engine
from tests.errors import refuses
from tests.training.conftest import recipe, tiny

HYPOTHESES = ["Der Hund läuft schnell nach Hause .", "Eine Katze, die schläft."]
REFERENCES = ["Der Hund läuft sehr schnell nach Hause .", "Eine Katze , die schläft ."]


def test_bleu_and_chrf_equal_sacrebleu() -> None:
    result = bleu_chrf_scores(HYPOTHESES, [REFERENCES])
    assert result["bleu"] == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert result["chrf"] == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert bleu_chrf_scores(REFERENCES, [REFERENCES])["bleu"] == pytest.approx(100)


def test_tokenized_bleu_does_not_tokenize() -> None:
    assert tokenized_bleu(REFERENCES, [REFERENCES]) == pytest.approx(100)
    scores = bleu_chrf_scores(HYPOTHESES[1:], [REFERENCES[1:]])
    assert tokenized_bleu(HYPOTHESES[1:], [REFERENCES[1:]]) < scores["bleu"]


def test_joined_sequence_needs_positions_for_source_and_target(corpus) -> None:
    # padded to one batch of 7 source and 9 target columns
    pairs = Split.from_lists([[5] * 6, [5] * 2], [[5] * 3, [5] * 8], ["x", "y"], ["x", "y"])
    long = replace(corpus, validation=pairs, train=pairs)
    whole = recipe(score_splits="validation")
    for length, fits in ((16, True), (15, False)):
        first = tiny(model="decoder-only", embedding__positions="learned",
                   embedding__max_length=length)
        model = build_model(first.block, vocab=corpus.tokenizer.vocab_size)
        if fits:
            check_lengths(model, long, whole)
            model(*(torch.ones(2, size, dtype=torch.int64) for size in (7, 9)))
        else:
            with pytest.raises(TrainingFailedError, match="validation: a sentence has 16 tokens"):
                check_lengths(model, long, whole)


def test_perplexity_that_overflows_is_none() -> None:
    assert perplexity(math.log(7)) == pytest.approx(7)
    assert perplexity(1e6) is None


@pytest.mark.parametrize("beam", [1, 3])
def test_translations_do_not_depend_on_batching(corpus, beam: int) -> None:
    model = build_model(tiny().block, vocab=corpus.tokenizer.vocab_size, seed=2,
                        dtype=torch.float64).eval()
    hardware = Hardware.from_recipe(recipe())
    ids = corpus.test.source_ids
    for tokens in (12, 2048):
        result = translate(model, corpus.test, corpus.tokenizer, hardware,
                          DecodingOptions(beam, batch_tokens=tokens, n_best=beam))
        for row in range(0, len(ids), 5):
            [alone] = translate(model, Split.from_lists([ids[row].tolist()]), corpus.tokenizer,
                                hardware, DecodingOptions(beam))
            assert result[row][0] == (alone[0].text, pytest.approx(alone[0].score),
                                      alone[0].reached_limit) and len(result[row]) == beam
            scores = [translation.score for translation in result[row]]
            assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.full
def test_fixed_shapes_give_the_same_translations(corpus, beam: int) -> None:
    model = build_model(tiny().block, vocab=corpus.tokenizer.vocab_size, seed=2,
                        dtype=torch.float64).eval()
    hardware = Hardware.from_recipe(recipe(precision="fp32"))
    static = replace(hardware, has_fixed_shapes=True)
    for tokens in (60, 2048):
        decoding = DecodingOptions(beam, batch_tokens=tokens, n_best=beam)
        expected, actual = (translate(model, corpus.test, corpus.tokenizer, shapes, decoding)
                           for shapes in (hardware, static))
        assert [[translation.text for translation in row] for row in actual] == [
            [translation.text for translation in row] for row in expected]


def test_decoding_batches_hold_each_pair_once(corpus) -> None:
    batches = decoding_batches(corpus.train, 100)
    assert sorted(np.concatenate(batches.indices_by_batch)) == list(range(len(corpus.train)))
    for batch in batches:
        widths = -(-(batch.source != 0).sum(1) // 8)
        assert len(set(widths)) == 1 and batch.source.size <= 100


def test_out_of_memory_halves_batches_of_decoding() -> None:
    batch_sizes = []

    def run(batch_tokens: int) -> str:
        batch_sizes.append(batch_tokens)
        if batch_tokens > 100:
            raise MemoryError
        return "done"

    assert retry_with_smaller_batches(run, 512) == "done" and batch_sizes == [512, 256, 128, 64]
    with pytest.raises(MemoryError):
        retry_with_smaller_batches(lambda batch_tokens: run(1000), 4)


class Weight(torch.nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((2,), value, dtype=torch.bfloat16))


@pytest.mark.parametrize(("kind", "steps", "mean"), [("last", [4, 5], 4.5), ("best", [1, 3], 2.0)])
def test_snapshots_average_the_last_or_the_best(
        tmp_path, kind: str, steps: list[int], mean: float) -> None:
    snapshots = WeightSnapshots(tmp_path, 2)
    for step, score in ((1, 0.1), (2, 0.9), (3, 0.2), (4, 0.5), (5, 0.7)):
        snapshots.add(Weight(float(step)), step, *[(score,)] * (kind == "best"))
    assert sorted(snapshots.scores_by_step) == steps
    result = snapshots.average()["w"]
    assert result.dtype == torch.float32 and result.tolist() == [mean, mean]
    snapshots.delete_unused()
    assert len(list(snapshots.folder.iterdir())) == 2
    snapshots.clear()
    assert not snapshots.folder.exists()


def test_loss_per_character_does_not_depend_on_the_vocabulary(corpus, tmp_path) -> None:
    characters = sum(len(line) + 1 for line in corpus.validation.target_text)
    for vocab in (60, 100):
        other = load_corpus(corpus.spec.replace(vocab=vocab), tmp_path)
        tokens = len(other.validation.target_ids.flat) + len(other.validation)
        assert tokens_per_character(other, "validation") * characters == pytest.approx(tokens)
        again = other.tokenizer.decode(other.validation.target_ids)
        assert again == corpus.validation.target_text
        assert bleu_chrf_scores(again, [other.validation.target_text])["bleu"] == pytest.approx(100)


def test_truncated_sentences_count_remaining_characters(corpus, tmp_path) -> None:
    cut = load_corpus(corpus.spec.replace(max_length=4), tmp_path)
    assert cut.counts["validation"]["cut"]
    left = sum(len(line) + 1 for line in cut.tokenizer.decode(cut.validation.target_ids))
    tokens = len(cut.validation.target_ids.flat) + len(cut.validation)
    assert tokens_per_character(cut, "validation") == pytest.approx(tokens / left)


@pytest.fixture(scope="module")
def spelled_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of digits, and of their names with no-break spaces between them: 20 times as long."""
    folder = tmp_path_factory.mktemp("digits")
    for split, start, count in (("train", 0, 400), ("val", 400, 10), ("test", 500, 10)):
        rows = [Random(index).choices("01", k=1 + index % 3)
                for index in range(start, start + count)]
        (folder / f"{split}.a").write_text("".join(" ".join(row) + "\n" for row in rows))
        (folder / f"{split}.b").write_text("".join(
            "\u00a0".join({"0": "n u l l o o o o o o", "1": "e i n s s s s s s s"}[digit]
                          for digit in row) + " .\n" for row in rows))
    (folder / "data.yaml").write_text("data: {source: a, target: b, train: train, validation: val, "
                                      "test: test, vocab: 24}\n")
    return folder


@pytest.mark.full
def test_length_limit_fits_the_training_text(spelled_out: Path, tmp_path: Path) -> None:
    """A limit of 1.5 source tokens + 10 would end most of these translations."""
    corpus = load_data(str(spelled_out / "data.yaml"))
    lengths = corpus.train.source_ids.lengths + 1, corpus.train.target_ids.lengths
    source, target = (torch.from_numpy(rows) for rows in lengths)
    limits = default_max_lengths(torch.ones(1, 1), corpus.max_length_a)
    assert corpus.max_length_a == round(corpus.max_length_a, 1) > 1.5 and limits.item() > 10
    padded = torch.zeros(len(source), int(source.max()))
    padded[torch.arange(padded.shape[1]) < source[:, None]] = 1
    assert (default_max_lengths(padded, corpus.max_length_a) >= target).double().mean() >= 0.999
    assert (default_max_lengths(padded) < target).double().mean() > 0.5
    result = train(tiny(), corpus, recipe(steps=150, lr=1e-2, dropout=0.0, attention_dropout=0.0,
                                          activation_dropout=0.0), tmp_path)
    trained = read_checkpoint(tmp_path)
    assert trained.max_length_a == corpus.max_length_a
    metrics = result.metrics["test"]
    assert metrics["decoding"].startswith("greedy, at most") and metrics["bleu"] > 50
    # text is passed through as it is, with its no-break spaces
    lines = (spelled_out / "test.a").read_text().splitlines()
    translator = Translator(tmp_path)
    translations = translator.best_translations([*lines, " \u00a0\u3000"])
    assert translations[-1] == "" and sum("\u00a0" in line for line in translations) > 2
    assert bleu_chrf_scores(translations[:-1], [corpus.test.target_text])["bleu"] == metrics["bleu"]
    data = load_data_spec(str(spelled_out / "data.yaml"))
    write_distilled_data([tmp_path], data, tmp_path / "kd", {})
    distilled = (tmp_path / "kd.b").read_text().split("\n")[:-1]
    assert sum("\u00a0" in line for line in distilled) > 100
    short = score_split(build_initial_engine(trained), corpus, "test", DecodingOptions(1))
    assert short["reached_limit"] > 5 and short["bleu"] < metrics["bleu"]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_translator_has_the_precision_of_training(spelled_out: Path, tmp_path: Path, monkeypatch,
                                                  precision: str) -> None:
    corpus = load_data(str(spelled_out / "data.yaml"))
    train(tiny(), corpus, recipe(steps=1, precision=precision), tmp_path)
    types = []

    def translate(model, split, tokenizer, hardware, search):
        types.append(hardware.dtype)
        return [[text] for text in split.source_text]

    monkeypatch.setattr("scalesearch.export.translator.translate", translate)
    translator = Translator(tmp_path)
    translator._decode(corpus.test, translator.decoding)
    assert types == [precision]


@pytest.mark.full
def test_translations_with_a_shortlist_have_the_same_bleu(spelled_out: Path,
                                                           tmp_path: Path) -> None:
    """Each digit has its own letters, which occur with it in the training text."""
    corpus = load_data(str(spelled_out / "data.yaml"))
    train(tiny(), corpus, recipe(steps=150, lr=1e-2, dropout=0.0, attention_dropout=0.0,
                                 activation_dropout=0.0), tmp_path)
    limited = Translator(tmp_path, shortlist=8)
    shortlist = limited.decoding.shortlist
    assert shortlist is not None and shortlist.description in limited.decoding.description
    batch = torch.from_numpy(next(iter(eval_batches(corpus.test, 200))).source)
    assert shortlist.allowed(batch).double().mean() < 0.9
    bleu, limited_bleu = (
        bleu_chrf_scores(translator.best_translations(corpus.test.source_text),
                         [corpus.test.target_text])["bleu"]
        for translator in (Translator(tmp_path), limited))
    assert bleu > 50 and abs(bleu - limited_bleu) < 2
    with refuses("shortlist-output"):
        Translator([str(tmp_path), str(tmp_path)], shortlist=8)


def build_initial_engine(trained):
    """An engine with the weights of a trained model."""
    return build_engine(trained.model.train(), recipe(), Hardware.from_recipe(recipe()))


def test_recipe_sets_the_length_limit(corpus) -> None:
    limit = resolve_decoding(recipe(max_length_a=3, max_length_b=0), 1.7)
    assert limit.max_lengths(torch.tensor([[5, 6, 3, 0]])).tolist() == [9]
    learned = resolve_decoding(recipe(), 1.7)
    assert learned.max_lengths(torch.tensor([[5, 6, 3, 0]])).tolist() == [15]
    assert resolve_decoding(recipe(), corpus.max_length_a).description == "greedy"


@pytest.mark.full
def test_pairs_of_cropped_sources_are_not_distilled(corpus, tmp_path: Path) -> None:
    train(tiny(), corpus, recipe(), tmp_path / "teacher")
    spec = corpus.spec.replace(train=str(tmp_path / "train"))
    source = ["one red dog", "the old house " * 200, "two cats", "  "]
    (tmp_path / "train.en").write_text("".join(f"{line}\n" for line in source))
    (tmp_path / "train.de").write_text("x\n" * len(source))
    facts = write_distilled_data([tmp_path / "teacher"], spec, tmp_path / "kd", {"beam": 2})
    assert (facts["pairs"], facts["left_out"]) == (2, 1)
    assert (tmp_path / "kd.en").read_text().splitlines() == ["one red dog", "two cats"]
    assert len((tmp_path / "kd.de").read_text().splitlines()) == 2
