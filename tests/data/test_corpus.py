"""From files to a corpus: kept, dropped and counted pairs, and errors."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from scalesearch.data import UNK, DataSpec, Tokenizer, load_corpus
from scalesearch.training.input_files import load_data_spec
from tests.data.conftest import SOURCE, TARGET, Write
from tests.errors import refuses


def test_splits_hold_text_and_ids(spec: DataSpec, cache: Path) -> None:
    corpus = load_corpus(spec, cache)
    assert corpus.train.source_text[:2] == [f"{SOURCE[0]} 0", f"{SOURCE[1]} 1"]
    assert corpus.test.target_text == [f"{line} {200 + i}" for i, line in enumerate(TARGET)]
    for split in (corpus.train, corpus.validation, corpus.test):
        assert corpus.tokenizer.decode(split.source_ids) == split.source_text
        assert corpus.tokenizer.decode(split.target_ids) == split.target_text
    assert (
        corpus.tokenizer.vocab_size, corpus.is_synthetic, corpus.name) == (60, False, "text en-de")
    assert corpus.notes == ()


def test_to_json_is_json(spec: DataSpec, cache: Path) -> None:
    corpus = load_corpus(spec, cache)
    expected_text = json.loads(json.dumps(asdict(corpus.facts)))
    assert (expected_text["hash"], expected_text["vocab"],
            expected_text["spec"]) == (corpus.content_hash, 60, spec.model_dump())
    assert expected_text["counts"]["train"] == {
        "read": 40, "empty": 0, "no_token": 0, "too_long": 0, "uneven": 0, "pairs": 40,
        "source_tokens": len(corpus.train.source_ids.flat),
        "target_tokens": len(corpus.train.target_ids.flat), "source_unknown": 0,
        "target_unknown": 0}


def test_unsuitable_training_pairs_are_dropped_and_counted(spec: DataSpec, write: Write,
                                                                 cache: Path) -> None:
    text = Path(spec.train[0])
    source, target = (text.with_suffix(f".{side}").read_text().splitlines()
                      for side in ("en", "de"))
    write("text/train.en", [*[""] * 1000, "dog", "the house " * 60, "a dog", *source])
    write("text/train.de", [*["leer"] * 1000, " \t", "das Haus", "ein Hund" * 12, *target])
    corpus = load_corpus(spec.replace(max_length=100, max_ratio=6), cache)
    counts = corpus.counts["train"]
    assert {key: counts[key] for key in ("read", "empty", "too_long", "uneven", "pairs")} == {
        "read": 1043, "empty": 1001, "too_long": 1, "uneven": 1, "pairs": 40}
    assert (corpus.train.source_text, corpus.train.target_text) == (source, target)
    assert corpus.notes == ("train: 1,001 of 1,043 pairs left out: a side is empty",
                            "train: 1 of 1,043 pairs left out: longer than max_length",
                            "train: 1 of 1,043 pairs left out: beyond max_ratio")


def test_long_test_sentences_are_truncated_without_references(
        spec: DataSpec, write: Write, cache: Path) -> None:
    long = " ".join(TARGET * 10)
    write("text/test.en", ["a dog", "the house"])
    write("text/test.de", ["ein Hund", long])
    corpus = load_corpus(spec.replace(max_length=20), cache)
    assert corpus.test.target_ids.lengths.max() == 20
    assert corpus.test.target_text[1] == long
    assert corpus.counts["test"]["cut"] == 1
    assert "test: 1 of 2 pairs are truncated to max_length 20" in "".join(corpus.notes)


def test_max_pairs_applies_to_the_vocabulary(spec: DataSpec, write: Write, cache: Path) -> None:
    text = Path(spec.train[0]).with_suffix(".en")
    write("text/train.en", [*text.read_text().splitlines()[:39], "Ω"])
    corpus = load_corpus(spec.replace(max_pairs=10), cache)
    assert (len(corpus.train), corpus.counts["train"]["beyond_limit"]) == (10, 30)
    assert UNK in corpus.tokenizer.encode(["Ω"])[0]


def test_lowercase_applies_to_references(spec: DataSpec, cache: Path) -> None:
    corpus = load_corpus(spec.replace(lowercase=True), cache)
    assert corpus.test.target_text[0] == "der kleine hund läuft . 200"
    assert "BLEU is case-insensitive" in corpus.notes[-1]


def test_encoding_in_chunks_gives_the_same_ids(spec: DataSpec, cache: Path, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_corpus(spec, cache)
    monkeypatch.setattr("scalesearch.data.prepare._CHUNK", 7)
    assert load_corpus(spec, tmp_path / "other").content_hash == whole.content_hash


def test_overlap_of_splits_is_reported(spec: DataSpec, write: Write, cache: Path) -> None:
    write("text/test.en", [f"{SOURCE[0]} 0", f"{SOURCE[1]} 1", "a dog"])
    write("text/test.de", [f"{TARGET[0]} 0", "das ist ein anderes Haus", "ein Hund"])
    corpus = load_corpus(spec, cache)
    assert corpus.counts["overlap"] == {"validation_pairs": 0, "validation_sources": 0,
                                        "test_pairs": 1, "test_sources": 2, "test_in_validation": 0}
    assert corpus.notes == ("warning: 2 of 3 test sources are also in the training text, "
                            "1 with the same translation",)


def test_overlap_of_validation_and_test_is_reported(
        spec: DataSpec, write: Write, cache: Path) -> None:
    for split in ("val", "test"):
        write(f"text/{split}.en", ["the cat", f"a {split}"])
        write(f"text/{split}.de", ["die Katze sieht das Haus", f"ein {split}"])
    note = load_corpus(spec, cache).notes[-1]
    assert note.startswith("warning: 1 of 2 test pairs") and "validation" in note


def test_overlap_ignores_spaces_case_and_compatibility(spec: DataSpec, write: Write,
                                                       cache: Path) -> None:
    """A trailing blank on every training line must not hide that the test text was trained on."""
    source = [f"The ﬁrst dog runs {i}" for i in range(6)]
    target = [f"Der erste Hund sieht {i}" for i in range(6)]
    write("text/train.en", [f"  {line} " for line in source])
    write("text/train.de", [line.replace(" ", "\u00a0") for line in target])
    write("text/test.en", [line.lower().replace("ﬁ", "fi") for line in source])
    write("text/test.de", [line.replace(" ", "  ") for line in target])
    for task, files in (("translation", {}),
                        ("language-model", {"source": None, "target": None, "window": 8})):
        if files:
            folder = Path(spec.train[0]).parent
            files |= {split: str(folder / f"{name}.de") for split, name in
                      (("train", "train"), ("validation", "val"), ("test", "test"))}
        overlap = load_corpus(spec.replace(task=task, vocab=44, **files), cache).counts["overlap"]
        assert overlap.get("test_pairs", overlap.get("test_lines")) == 6


def test_several_references_are_kept_with_the_corpus(spec: DataSpec, write: Write,
                                                     cache: Path) -> None:
    text = Path(spec.test[0])
    write("text/second.de", [f"Zweite Übersetzung {i}" for i in range(5)])
    test = {"source": f"{text}.en", "target": [f"{text}.de", f"{text.parent}/second.de"]}
    single = load_corpus(spec, cache)
    for _ in range(2):  # prepared, then read from the cache
        corpus = load_corpus(spec.replace(test=test, lowercase=True), cache)
        assert corpus.test.texts.references == [
            [line.lower() for line in single.test.target_text],
            [f"zweite übersetzung {i}" for i in range(5)]]
        assert corpus.test.target_ids.lengths.tolist() == [
            len(row) for row in corpus.tokenizer.encode(corpus.test.target_text)]
    assert single.test.texts.more_references == []
    write("text/second.de", ["zu", "wenig"])
    with refuses("unequal-lines", "second.de", key="data.test"):
        load_corpus(spec.replace(test=test), cache)
    with refuses("unequal-lines", key="data.test"):
        write("text/second.de", ["x"] * 5)
        load_corpus(spec.replace(test=[test, str(text)]), cache)


def test_texts_that_cannot_be_scored_are_refused_before_training(
        spec: DataSpec, write: Write, cache: Path) -> None:
    write("text/test.de", ["他喜欢在早上喝茶"] * 5)
    with refuses("rouge-not-latin"):
        load_corpus(spec.replace(task="summarization"), cache)
    assert "test: BLEU uses the tokenizer zh" in "".join(load_corpus(spec, cache).notes)


def test_unknown_characters_are_reported(spec: DataSpec, write: Write, cache: Path) -> None:
    write("text/test.en", ["Ω dog"])
    write("text/test.de", ["ein Hund sieht das Haus"])
    assert load_corpus(spec, cache).notes == (
        "test: 1 token with characters that are not in the vocabulary",)


def test_missing_test_text_of_a_language_model_is_not_described(write: Write,
                                                                cache: Path) -> None:
    lines = str(write("text/lines.txt", [*SOURCE, *TARGET]))
    spec = DataSpec(task="language-model", train=lines, validation=lines, vocab=60)
    notes = load_corpus(spec, cache).notes
    assert "validation every 64 tokens" in notes[0] and not any("test" in note for note in notes)


def test_parts_are_concatenated(spec: DataSpec, write: Write, cache: Path) -> None:
    folder = Path(spec.train[0]).parent
    for side, lines in (("en", SOURCE), ("de", TARGET)):
        write(f"text/more.{side}.gz", lines)
        write(f"text/{side}-extra.txt", lines[:2])
    extra = {"source": str(folder / "en-extra.txt"), "target": str(folder / "de-extra.txt")}
    corpus = load_corpus(spec.replace(train=[spec.train[0], str(folder / "more"), extra]), cache)
    assert corpus.train.target_text[40:] == [*TARGET, *TARGET[:2]]


@pytest.mark.parametrize("task", ["translation", "correction", "language-model"])
def test_tables_give_the_corpus_of_their_columns(task: str, spec: DataSpec, write: Write,
                                                 cache: Path) -> None:
    folder = Path(spec.train[0]).parent
    splits = {"train": "train", "validation": "val", "test": "test"}
    key, side = ("text", "de") if task == "language-model" else ("source", "en")
    for name in splits.values():
        columns = [(folder / f"{name}.{suffix}").read_text().splitlines()
                   for suffix in (side, "de")]
        write(f"text/{name}.tsv", [f"{key}\ttarget", *map("\t".join, zip(*columns))])
        write(f"text/{name}.jsonl.gz", [json.dumps({key: first, "target": second})
                                        for first, second in zip(*columns)])
    keys = {"task": task, "vocab": 60}
    plain = {split: str(folder / name) + ".de" * (key == "text") for split, name in splits.items()}
    languages = {} if key == "text" else {"source": "en", "target": "de"}
    expected = load_corpus(DataSpec(**keys, **languages, **plain), cache)
    for ending in (".tsv", ".jsonl"):  # no languages are needed
        corpus = load_corpus(DataSpec(**keys, **{split: f"{folder / name}{ending}"
                                                 for split, name in splits.items()}), cache)
        assert corpus.content_hash == expected.content_hash
        assert corpus.train.texts == expected.train.texts


def test_tokenizer_file_is_used(spec: DataSpec, tmp_path: Path, cache: Path) -> None:
    tokenizer = Tokenizer.fit(SOURCE + TARGET, 48)
    (tmp_path / "m.model").write_bytes(tokenizer.model_bytes)
    corpus = load_corpus(spec.replace(vocab=None, tokenizer=str(tmp_path / "m.model")), cache)
    assert corpus.tokenizer == tokenizer != load_corpus(spec, cache).tokenizer
    other = Tokenizer.fit(SOURCE + TARGET, 46)
    (tmp_path / "m.model").write_bytes(other.model_bytes)
    again = load_corpus(spec.replace(vocab=None, tokenizer=str(tmp_path / "m.model")), cache)
    assert again.tokenizer == other


@pytest.mark.parametrize(
    ("files", "error"),
    [({"text/val.de": ["eins"] * 2999},
      ("unequal-lines", "/val.en has 5 lines", "/val.de has 2,999")),
     ({"text/val.de": ["eins", "zwei"]},
      ("unequal-lines", "validation:", "/val.en has 5 lines", "/val.de has 2")),
     ({"text/test.de": ["eins", "", "drei", "vier", " "]},
      ("empty-lines", "test: 2", "/test.de:2", "/test.de:5")),
     ({"text/val.en": ["one", "", "three", "four", "five"]},
      ("empty-lines", "validation: 1", "/val.en:2")),
     ({"text/val.tsv": ["source\ttarget", "one\teins", "two\t"]},
      ("empty-lines", "validation: 1", "/val.tsv:3")),
     ({"text/val.tsv": ["one\teins", "two"]}, ("bad-row", "/val.tsv:2")),
     ({"text/train.en": [], "text/train.de": []},
      ("no-sentences", "train:", "train.en", "train.de")),
     ({"text/train.en": [""] * 40}, ("no-sentences", "train:")),
     ({"text/train.de": b"\xff\n" * 40}, ("not-utf8", "train.de:1:", "byte 1", "0xff"))])
def test_invalid_text_is_refused_with_position(spec: DataSpec, write: Write, cache: Path,
                                            files: dict[str, list[str] | bytes],
                                            error: tuple) -> None:
    for name, content in files.items():
        path = write(name, content)
        if path.suffix == ".tsv":
            spec = spec.replace(validation=str(path))
    with refuses(*error):
        load_corpus(spec, cache)
    assert not list(cache.glob("[!.]*"))


def test_empty_line_of_an_annotator_is_refused(spec: DataSpec, write: Write, cache: Path) -> None:
    test = [str(write(f"text/test.{name}", [line, "it is"]))
            for name, line in (("src", "a b"), ("one", "a c"))]
    blank = str(write("text/test.two", ["a d", ""]))
    with refuses("empty-lines", "test: 1", "/test.two:2"):
        load_corpus(spec.replace(task="correction",
                            test={"source": test[0], "target": [test[1], blank]}), cache)


def test_too_long_corrections_are_refused(spec: DataSpec, write: Write, cache: Path) -> None:
    write("text/test.en", ["a dog", "a " * 2001])
    write("text/test.de", ["ein Hund", "ein"])
    with refuses("line-too-long", "test.en:2:", key="data.test"):
        load_corpus(spec.replace(task="correction"), cache)


@pytest.mark.parametrize("vocab", [10**6 + 1, 10**9, 10**20])
def test_huge_vocabulary_is_refused(spec: DataSpec, vocab: int) -> None:
    with refuses("bad-value", "vocab", vocab):
        spec.replace(vocab=vocab)


@pytest.mark.parametrize(("changes", "error"), [
    ({"test": "nowhere/test"}, ("no-such-file", "test:", "nowhere")),
    ({"vocab": 9000}, ("vocab-size-unsupported", "vocab:", "9,000")),
    ({"max_length": 1}, ("no-pairs-left", "40 pairs", "max_length 1")),
    ({"vocab": None, "tokenizer": "nowhere.model"}, ("cannot-read", "tokenizer:", "nowhere.model")),
])
def test_spec_that_does_not_fit_the_text_is_refused(spec: DataSpec, cache: Path, changes: dict,
                                             error: tuple) -> None:
    with refuses(*error):
        load_corpus(spec.replace(**changes), cache)


def test_file_of_both_sides_is_named_once(spec: DataSpec, write: Write, cache: Path) -> None:
    table = str(write("text/empty.tsv", []))
    with refuses("no-sentences", table, key="data.train") as error:
        load_corpus(spec.replace(train=table), cache)
    assert str(error.value).count(table) == 1


def test_folder_instead_of_a_prefix_is_reported(spec: DataSpec, cache: Path) -> None:
    folder = str(Path(spec.train[0]).parent)
    with refuses("no-such-file", f"{folder} is a folder", key="data.train"):
        load_corpus(spec.replace(train=folder), cache)
    with refuses("bad-value", "`corpus.SOURCE`"):
        DataSpec.from_mapping({"train": "corpus", "validation": "corpus"})


def test_table_instead_of_a_data_file_is_reported(write: Write) -> None:
    table = write("text/pairs.tsv", ["one\teins"])
    with refuses("wrong-type", "`train`", place=f"{table}: this is a table"):
        load_data_spec(str(table))


def test_only_reasons_that_drop_pairs_are_reported(spec: DataSpec, cache: Path) -> None:
    with refuses("no-pairs-left", "max_length") as error:
        load_corpus(spec.replace(max_length=1), cache)
    assert "max_ratio" not in str(error.value)


@pytest.mark.parametrize("name", ["train.en", "train.de", "packed.en.gz"])
def test_file_of_one_side_gets_the_prefix_as_help(
        spec: DataSpec, write: Write, cache: Path, name: str) -> None:
    write("text/packed.en.gz", ["a dog"])
    file = Path(spec.train[0]).parent / name
    with refuses("no-such-file", f"{file}.en", key="data.train") as caught:
        load_corpus(spec.replace(train=str(file)), cache)
    assert f"`{file.parent / name.split('.')[0]}`" in str(caught.value.help)
    with refuses("no-such-file") as caught:
        load_corpus(spec.replace(train=f"{file.parent}/train.fr"), cache)
    assert caught.value.help is None


def test_relative_paths_use_the_base_folder(spec: DataSpec, cache: Path) -> None:
    text = Path(spec.train[0]).parent
    relative = spec.replace(train="train", validation="val", test="test")
    assert load_corpus(
        relative, cache, base=text).content_hash == load_corpus(spec, cache).content_hash


def test_builtin_corpus_is_synthetic(cache: Path) -> None:
    few, more = (load_corpus(DataSpec(builtin="grammar", pairs=pairs, vocab=200), cache)
                 for pairs in (200, 300))
    assert (len(few.train), len(few.validation), len(few.test)) == (200, 500, 500)
    assert more.train.source_text[:200] == few.train.source_text
    assert (few.validation.target_text, few.test.target_text) == (
        more.validation.target_text, more.test.target_text)
    assert (few.name, few.is_synthetic) == ("grammar", True)
    assert few.notes[0].startswith("synthetic text")
    assert few.content_hash != more.content_hash


def test_tokenized_text_is_reported_unless_declared(write, spec, cache) -> None:
    for side, line in (("en", "a small dog runs {} ."), ("de", "ein kleiner Hund läuft {} .")):
        write(f"text/val.{side}", [line.format(900 + i) for i in range(101)])
    [note] = load_corpus(spec, cache).notes
    assert note.startswith("warning: 101 of 101 validation") and "`tokenized: true`" in note
    assert load_corpus(spec.replace(tokenized=True), cache).notes == ()
