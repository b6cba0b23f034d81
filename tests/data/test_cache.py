"""Cache of corpora: prepared once, keyed by content, repaired when damaged."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalesearch.data import Corpus, DataSpec, Tokenizer, default_cache, load_corpus
from scalesearch.data import corpus as data_corpus
from tests.bounds import bounded
from tests.data.conftest import Write
from tests.errors import refuses
from tests.mutated import mutated
from tests.processes import ended


def same(item: Corpus, other: Corpus) -> bool:
    """Whether all data that training and scoring read are equal."""
    sides = ("source_ids", "target_ids", "source_text", "target_text")
    return (item.content_hash == other.content_hash and item.tokenizer == other.tokenizer
            and item.counts == other.counts
            and all(getattr(getattr(item, split), side) == getattr(getattr(other, split), side)
                    for split in ("train", "validation", "test") for side in sides))


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if text is read, fitted or encoded from now on; used through ``request``."""
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the corpus is prepared again")
    monkeypatch.setattr(data_corpus, "read_sentences", fail)
    monkeypatch.setattr(Tokenizer, "fit", fail)
    monkeypatch.setattr(Tokenizer, "encode", fail)


def test_second_load_uses_the_cache(spec: DataSpec, cache: Path,
                                                           request: pytest.FixtureRequest) -> None:
    first = load_corpus(spec, cache)
    request.getfixturevalue("no_work")
    assert same(first, load_corpus(spec, cache))


def test_cache_is_keyed_by_content(spec: DataSpec, cache: Path, tmp_path: Path,
                                                       request: pytest.FixtureRequest) -> None:
    first = load_corpus(spec, cache)
    shutil.move(tmp_path / "text", tmp_path / "moved")
    request.getfixturevalue("no_work")
    moved = {split: str(tmp_path / "moved" / name) for split, name in
             (("train", "train"), ("validation", "val"), ("test", "test"))}
    assert same(first, load_corpus(spec.replace(**moved, name="other"), cache))


@pytest.mark.parametrize("changes",
                         [{"vocab": 61}, {"vocab_type": "unigram"}, {"lowercase": True},
                          {"max_length": 15}, {"max_ratio": 1.2}, {"max_pairs": 20}])
def test_corpus_hash_depends_on_fields(spec: DataSpec, cache: Path, changes: dict) -> None:
    spec = spec.replace(vocab=52)
    assert load_corpus(
        spec.replace(**changes), cache).content_hash != load_corpus(spec, cache).content_hash


def test_corpus_hash_depends_on_text(spec: DataSpec, write: Write, cache: Path) -> None:
    before = load_corpus(spec, cache)
    write("text/test.en", ["a dog"])
    write("text/test.de", ["ein Hund"])
    after = load_corpus(spec, cache)
    assert after.content_hash != before.content_hash
    assert len(after.test) == 1


def test_corpus_hash_does_not_depend_on_the_folder(
        spec: DataSpec, cache: Path, tmp_path: Path) -> None:
    assert load_corpus(spec, cache).content_hash == load_corpus(
        spec, tmp_path / "other").content_hash


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x55
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage", [_flip, lambda path: path.write_bytes(path.read_bytes()[:-3]), Path.unlink])
@pytest.mark.parametrize("name",
                         ["train.source.ids", "valid.target.offsets", "test.target.txt",
                          "tokenizer.model", "corpus.json"])
def test_damaged_cache_is_repaired(spec: DataSpec, cache: Path, damage, name: str) -> None:
    first = load_corpus(spec, cache)
    kept = pickle.loads(pickle.dumps(first))
    texts = [kept.test.target_text, kept.train.source_text, kept.validation.source_text]
    assert all(texts)
    damage(first.folder / name)
    second = load_corpus(spec, cache)
    assert second.content_hash == first.content_hash
    assert any("damaged and has been prepared again" in note for note in second.notes)
    third = load_corpus(spec, cache)
    assert third.notes == first.notes
    assert same(kept, third)
    assert sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock")) == [
        first.folder.name]


@pytest.mark.parametrize("examples", [15, pytest.param(500, marks=pytest.mark.slow)])
def test_any_damage_of_the_cache_is_repaired(spec: DataSpec, cache: Path, examples: int) -> None:
    first = load_corpus(spec, cache)
    kept = pickle.loads(pickle.dumps(first))
    names = sorted(path.name for path in first.folder.iterdir())
    meta = (first.folder / "corpus.json").read_text()

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from([*names, *["corpus.json"] * 5]),
           st.one_of(st.binary(max_size=50), mutated(meta),
                     st.sampled_from([Path("/dev/zero"), Path("/nowhere"), Path("/")])))
    def check(name: str, content: bytes | str | Path) -> None:
        file = first.folder / name
        file.unlink()
        if isinstance(content, Path):
            file.symlink_to(content)
        else:
            file.write_bytes(content if isinstance(content, bytes)
                             else content.encode("utf-8", "surrogatepass"))
        with bounded((name, content)):
            again = load_corpus(spec, cache)
        assert same(kept, again)

    check()


def test_ids_are_memory_mapped_and_read_only(spec: DataSpec, cache: Path) -> None:
    ids = load_corpus(spec, cache).train.source_ids
    assert isinstance(ids.flat.base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        ids.flat[0] = 1


@pytest.mark.full
def test_concurrent_processes_prepare_a_corpus_once(spec: DataSpec, cache: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from scalesearch.data import DataSpec, load_corpus, corpus
prepare = corpus.prepare_corpus
corpus.prepare_corpus = lambda *args: print("made", end=" ") or prepare(*args)
sys.stdin.readline()
print(load_corpus(DataSpec.from_mapping({spec.model_dump()!r}), Path({str(cache)!r})).content_hash)
"""
    running = [subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True, env=os.environ)
               for _ in range(2)]
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    expected_text = [ended(process)[1].split() for process in running]
    assert all(process.returncode == 0 for process in running)
    assert [words[0] == "made" for words in expected_text].count(True) == 1
    assert {words[-1] for words in expected_text} == {load_corpus(spec, cache).content_hash}


def test_interrupted_load_leaves_no_files(spec: DataSpec, cache: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("scalesearch.data.cache.hash_json", stop)
        load_corpus(spec, cache)
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []
    assert load_corpus(spec, cache).notes == ()


def test_unwritable_cache_is_refused(spec: DataSpec, write: Write) -> None:
    blocked = write("blocked", b"a file, not a folder")
    with refuses("cache-not-writable", "blocked", "XDG_CACHE_HOME", key="data"):
        load_corpus(spec, blocked / "cache")


def test_default_cache_uses_xdg_cache_home(spec: DataSpec, tmp_path: Path,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert load_corpus(spec).folder.parent == tmp_path / "xdg" / "scalesearch" / "corpora"


def test_missing_home_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with refuses("no-home", "XDG_CACHE_HOME"):
        default_cache()
