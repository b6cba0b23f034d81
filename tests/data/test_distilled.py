"""A teacher's translations as training text; the rest of the corpus is unchanged."""

from pathlib import Path

import pytest

from scalesearch.data import DataSpec, load_corpus
from tests.data.conftest import SOURCE, Write
from tests.errors import refuses

TRANSLATION = "der Lehrer sagt das Haus"


@pytest.fixture
def distilled(spec: DataSpec, write: Write) -> DataSpec:
    """``spec`` with translations of its 40 training sentences, one of which is empty."""
    source = Path(f"{spec.train[0]}.en").read_text().splitlines()
    write("kd/train.en", source)
    write("kd/train.de", ["", *[TRANSLATION] * (len(source) - 1)])
    return spec.replace(distilled=str(Path(spec.train[0]).parents[1] / "kd" / "train"))


def test_distilled_replaces_the_training_text_only(spec: DataSpec, distilled: DataSpec,
                                                                   cache: Path) -> None:
    real = load_corpus(spec, cache)
    corpus = load_corpus(distilled, cache)
    assert corpus.train.target_text == [
        TRANSLATION] * 39 and corpus.train.source_text == real.train.source_text[1:]
    assert corpus.tokenizer == real.tokenizer
    assert corpus.test.target_text == real.test.target_text
    assert corpus.validation.source_ids == real.validation.source_ids
    assert corpus.content_hash != real.content_hash and corpus.name == "text en-de (distilled)"
    assert "a teacher's translations instead of the real ones" in "".join(corpus.notes)
    assert "train: 1 of 40 pairs left out: a side is empty" in corpus.notes


def test_mix_distilled_has_both(spec: DataSpec, distilled: DataSpec, cache: Path) -> None:
    real = load_corpus(spec, cache)
    corpus = load_corpus(distilled.replace(mix_distilled=True), cache)
    assert corpus.train.target_text == [TRANSLATION] * 39 + real.train.target_text
    assert corpus.counts["train"]["read"] == 80 and corpus.counts["train"]["pairs"] == 79
    assert corpus.content_hash != load_corpus(distilled, cache).content_hash


def test_translations_of_several_teachers_are_concatenated(
        distilled: DataSpec, write: Write, cache: Path) -> None:
    """The second teacher translates from German: its sources are translations."""
    words = [f"haus {i}" for i in range(40)]
    write("back/de-en.en", ["the house"] * 40)
    write("back/de-en.de", words)
    both = distilled.replace(
                   distilled=(distilled.distilled[0],
                              str(Path(distilled.distilled[0]).parents[1] / "back/de-en")))
    corpus = load_corpus(both, cache)
    assert corpus.train.target_text == [TRANSLATION] * 39 + words
    assert corpus.train.source_text[39:] == ["the house"] * 40
    assert corpus.tokenizer == load_corpus(distilled, cache).tokenizer
    assert DataSpec.from_mapping(both.model_dump()) == both
    real = Path(f"{distilled.train[0]}.de").read_text().splitlines()
    limited = load_corpus(both.replace(max_pairs=10, mix_distilled=True), cache)
    assert limited.train.target_text == [TRANSLATION] * 10 + words[:10] + real[:10]
    assert limited.counts["train"]["beyond_limit"] == 29 + 30 + 30


def test_max_pairs_applies_to_translations(distilled: DataSpec, cache: Path) -> None:
    assert load_corpus(distilled.replace(max_pairs=10), cache).train.source_text == [
        f"{SOURCE[i % len(SOURCE)]} {i}" for i in range(1, 11)]


def test_corpus_hash_depends_on_translations(distilled: DataSpec, write: Write,
                                             cache: Path) -> None:
    before = load_corpus(distilled, cache).content_hash
    write("kd/train.de", ["etwas anderes"] * 40)
    assert load_corpus(distilled, cache).content_hash != before


def test_distilled_builtin_corpus_is_synthetic(tmp_path: Path, cache: Path) -> None:
    spec = DataSpec(builtin="grammar", pairs=50, vocab=200)
    real = load_corpus(spec, cache)
    (tmp_path / "kd.en").write_text("".join(f"{line}\n" for line in real.train.source_text))
    (tmp_path / "kd.de").write_text("ein Satz\n" * 50)
    corpus = load_corpus(spec.replace(distilled="kd"), cache, base=tmp_path)
    assert corpus.is_synthetic and corpus.name == "grammar (distilled)"
    assert corpus.tokenizer == real.tokenizer
    assert corpus.train.target_text == ["ein Satz"] * 50


@pytest.mark.parametrize(("changes", "error"), [
    ({"distilled": "nowhere/kd"}, ("no-such-file", "distilled")),
    ({"distilled": {"a": "b"}}, ("unknown-key", "`a`", "distilled")),
    ({"mix_distilled": True}, ("bad-value", "mix_distilled")),
])
def test_invalid_distilled_data_are_refused(spec: DataSpec, cache: Path, changes: dict,
                               error: tuple[str, ...]) -> None:
    with refuses(*error):
        load_corpus(spec.replace(**changes), cache)
