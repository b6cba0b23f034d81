"""Tokenizer: round trip, determinism, and errors of vocabularies."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.data import BOS, EOS, PAD, UNK, Tokenizer
from tests.data.conftest import SOURCE, TARGET
from tests.errors import refuses

TEXT = [*SOURCE, *TARGET, "½ … „Straße“ ﬁn ①"]
LETTERS = sorted(set("".join(TEXT)) - {" "})
TOKENIZERS = {model: Tokenizer.fit(TEXT, 48, model) for model in ("bpe", "unigram")}


@given(words=st.lists(st.text(LETTERS, min_size=1), min_size=1),
       model=st.sampled_from(["bpe", "unigram"]))
def test_tokenizer_round_trip(words: list[str], model: str) -> None:
    tokenizer = TOKENIZERS[model]
    sentence = " ".join(words)
    [ids] = tokenizer.encode([sentence])
    assert tokenizer.decode([ids]) == [sentence]
    assert not {PAD, UNK, BOS, EOS} & set(ids)
    assert max(ids) < tokenizer.vocab_size


def test_text_is_not_normalized_except_blanks() -> None:
    tokenizer = TOKENIZERS["bpe"]
    assert tokenizer.decode(tokenizer.encode(["  ½ …   ﬁn ① "])) == ["½ … ﬁn ①"]


def test_decode_removes_special_tokens() -> None:
    tokenizer = TOKENIZERS["bpe"]
    [ids] = tokenizer.encode(["der Hund"])
    framed = np.array([BOS, *ids, EOS, PAD, PAD])
    assert tokenizer.decode([framed, framed.tolist()]) == ["der Hund", "der Hund"]
    assert tokenizer.decode([[UNK]])[0].strip() == "⁇"
    assert tokenizer.encode([]) == tokenizer.decode([]) == []


def test_special_tokens_in_text_are_encoded_as_text() -> None:
    assert not {BOS, EOS, PAD} & set(TOKENIZERS["bpe"].encode(["<s> </s> <pad>"])[0])


@pytest.mark.parametrize("model", ["bpe", "unigram"])
def test_fit_is_deterministic(model: str) -> None:
    assert Tokenizer.fit(TEXT, 48, model).model_bytes == TOKENIZERS[model].model_bytes


def test_tokenizer_is_restored_from_bytes_file_and_pickle(tmp_path: Path) -> None:
    tokenizer = TOKENIZERS["bpe"]
    (tmp_path / "m.model").write_bytes(tokenizer.model_bytes)
    for copy in (Tokenizer(tokenizer.model_bytes), Tokenizer.from_file(tmp_path / "m.model"),
                 pickle.loads(pickle.dumps(tokenizer))):
        assert copy == tokenizer
        assert copy.encode(TEXT) == tokenizer.encode(TEXT)


@pytest.mark.parametrize("model", ["bpe", "unigram"])
def test_error_names_the_largest_vocabulary(model: str) -> None:
    with refuses("vocab-size-unsupported", "5,000", key="data.vocab") as error:
        Tokenizer.fit(TEXT, 5000, model)
    largest = int(re.findall(r"\d+", str(error.value))[-1])
    assert Tokenizer.fit(TEXT, largest, model).vocab_size == largest


def test_too_small_vocabulary_is_refused() -> None:
    with refuses("vocab-size-unsupported", 6, key="data.vocab"):
        Tokenizer.fit(TEXT, 6)


def test_invalid_tokenizer_files_are_refused(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.model"
    with refuses("cannot-read", "m.model", key="data.tokenizer"):
        Tokenizer.from_file(path)
    for junk in (b"", b"junk", TOKENIZERS["bpe"].model_bytes[:40]):
        path.write_bytes(junk)
        with refuses("not-a-tokenizer", "m.model"):
            Tokenizer.from_file(path)
    assert not "".join(capfd.readouterr())  # sentencepiece prints nothing


def test_tokenizer_with_other_special_ids_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "m.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT), model_writer=file, vocab_size=48, minloglevel=2)
    with refuses("other-special-ids", "(-1, 0, 1, 2)", "(0, 1, 2, 3)", "--pad_id=0"):
        Tokenizer.from_file(tmp_path / "m.model")
