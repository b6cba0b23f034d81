"""A vocabulary for each side: data, training, resume, translation and export."""

from pathlib import Path

import pytest

from scalesearch.api.model import train as train_from_api
from scalesearch.data import Corpus, DataSpec, Tokenizer, load_corpus
from scalesearch.export.export import export_training
from scalesearch.export.translator import Translator
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.training import read_checkpoint, train
from tests.errors import refuses
from tests.training.conftest import recipe, tiny

SIZES = (60, 70)


@pytest.fixture
def spec(corpus: Corpus) -> DataSpec:
    return corpus.spec.replace(vocab=SIZES[0], target_vocab=SIZES[1])


@pytest.fixture
def pair(spec: DataSpec, tmp_path: Path) -> Corpus:
    return load_corpus(spec, tmp_path / "cache")


def model(**changes: object) -> ModelSpec:
    return tiny(target_vocab=SIZES[1], embedding__tie="decoder", **changes)


def test_each_side_has_its_tokenizer(corpus: Corpus, pair: Corpus) -> None:
    tokenizer = pair.tokenizer
    assert (tokenizer.vocab_size, tokenizer.target.vocab_size) == SIZES
    assert tokenizer.target != tokenizer.source and not corpus.tokenizer.is_pair
    train_split = pair.train
    assert tokenizer.decode([train_split.source_ids[0]]) == train_split.source_text[:1]
    assert tokenizer.target.decode([train_split.target_ids[0]]) == train_split.target_text[:1]
    assert Tokenizer.fit(train_split.source_text, SIZES[0]) == tokenizer.source


def test_files_of_tokenizers_give_the_same_ids(pair: Corpus, spec: DataSpec,
                                               tmp_path: Path) -> None:
    (tmp_path / "both.model").write_bytes(pair.tokenizer.model_bytes)
    (tmp_path / "en.model").write_bytes(pair.tokenizer.source.model_bytes)
    (tmp_path / "de.model").write_bytes(pair.tokenizer.target.model_bytes)
    fitted = {"vocab": None, "target_vocab": None}
    both = spec.replace(**fitted, tokenizer=str(tmp_path / "both.model"))
    single = spec.replace(**fitted, tokenizer=str(tmp_path / "en.model"),
                          target_tokenizer=str(tmp_path / "de.model"))
    for other in (both, single, single.replace(target_tokenizer=None, target_vocab=SIZES[1])):
        assert load_corpus(other, tmp_path / "cache").content_hash == pair.content_hash
    assert single.with_tokenizer(pair.tokenizer, tmp_path / "both.model") == both
    with refuses("given-twice", key="data.tokenizer"):
        load_corpus(both.replace(target_vocab=SIZES[1]), tmp_path / "cache")
    with refuses("given-twice", key="data.target_vocab"):
        spec.with_tokenizer(load_corpus(spec.replace(target_vocab=64)).tokenizer,
                            tmp_path / "both.model")
    (tmp_path / "both.model").write_bytes(pair.tokenizer.model_bytes[:-40])
    with refuses("not-a-tokenizer", "both.model"):
        load_corpus(both, tmp_path / "cache")


def test_problems_name_the_key_of_the_target(spec: DataSpec, tmp_path: Path) -> None:
    with refuses("vocab-size-unsupported", key="data.target_vocab"):
        load_corpus(spec.replace(target_vocab=5), tmp_path / "cache")
    with refuses("given-twice", 70, 64, key="data.target_vocab"):
        spec.with_vocab(None, 64)
    assert spec.replace(target_vocab=None).with_vocab(*SIZES) == spec


@pytest.mark.full
def test_resumed_run_equals_uninterrupted_run_and_translates(pair: Corpus, tmp_path: Path) -> None:
    how = recipe(subword_dropout=0.1)
    whole, paused = tmp_path / "whole", tmp_path / "paused"
    result = train(model(), pair, how, whole)
    assert result.state == "complete" and result.metrics["test"]["bleu"] >= 0
    train(model(), pair, how, paused, until_share=0.5)
    resumed = train(model(), pair, how, paused)
    assert resumed.metrics["test"]["loss"] == result.metrics["test"]["loss"]
    trained = read_checkpoint(whole)
    assert trained.tokenizer == pair.tokenizer
    shapes = {name: tuple(weight.shape) for name, weight in trained.model.state_dict().items()}
    assert shapes["embedding.source.table.weight"] == (SIZES[0], 16)
    assert shapes["embedding.target.table.weight"] == (SIZES[1], 16)
    translator = Translator(whole)
    lines = pair.test.source_text[:4]
    assert len(translator.best_translations(lines)) == 4
    with refuses("shortlist-output"):
        Translator(whole, shortlist=4)


def test_training_continues_from_a_model_with_its_vocabularies(pair: Corpus, spec: DataSpec,
                                                               tmp_path: Path) -> None:
    how = recipe(steps=2, average="none")
    train(model(), pair, how, tmp_path / "first")
    tuned = train_from_api(model(), spec, how, tmp_path / "tuned", initial_model=tmp_path / "first")
    assert tuned.result.initial_model["folder"] == str(tmp_path / "first")
    assert read_checkpoint(tmp_path / "tuned").tokenizer == pair.tokenizer


def test_model_and_data_have_the_same_vocabularies(corpus: Corpus, pair: Corpus,
                                                   tmp_path: Path) -> None:
    for architecture, data in ((tiny(), pair), (model(), corpus),
                               (tiny(target_vocab=64, embedding__tie="none"), pair)):
        with refuses("vocab-mismatch", key="target_vocab"):
            train(architecture, data, recipe(), tmp_path / "run")
    with refuses("vocab-mismatch", 80, SIZES[0], key="vocab"):
        train(model(vocab=80), pair, recipe(), tmp_path / "run")


@pytest.mark.parametrize("name", ["torch", "ctranslate2",
                                  pytest.param("onnx", marks=pytest.mark.full)])
def test_export_has_both_vocabularies(pair: Corpus, spec: DataSpec, tmp_path: Path,
                                      name: str) -> None:
    pytest.importorskip({"torch": "torch", "onnx": "onnxruntime"}.get(name, name))
    train(model(), pair, recipe(), tmp_path / "run")
    artifact = export_training(tmp_path / "run", tmp_path / "model", name, "none", spec, 10)
    if artifact.verification:
        assert artifact.verification["float"]["different"] == 0
    lines = pair.test.source_text[:5]
    assert Translator(tmp_path / "model").best_translations(lines) == Translator(
        tmp_path / "run", beam=1).best_translations(lines)
    with refuses("not-exportable", key="target_vocab"):
        export_training(tmp_path / "run", tmp_path / "hub", "huggingface", "none", spec, 10)
