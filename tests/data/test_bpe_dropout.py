"""BPE-dropout keeps the text and depends only on seed and epoch."""

import io
import subprocess
import sys
from threading import Thread

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.blocks.core import BOS, EOS, PAD, UNK
from scalesearch.data import DataSpec, Tokenizer, load_corpus, retokenize
from tests.data.conftest import SOURCE, TARGET
from tests.errors import refuses

TEXT = [*SOURCE, *TARGET]
BPE = Tokenizer.fit(TEXT, 60)


@given(dropout=st.floats(0, 0.99), seed=st.integers(0, 2**32 - 1))
def test_bpe_dropout_keeps_the_text(dropout: float, seed: int) -> None:
    rows = BPE.encode_with_dropout(TEXT, dropout, seed)
    assert BPE.decode(rows) == TEXT
    assert all(len(row) >= len(plain) for row, plain in zip(rows, BPE.encode(TEXT)))


def test_extreme_rates_of_bpe_dropout() -> None:
    assert BPE.encode_with_dropout(TEXT, 0, 1) == BPE.encode(TEXT)
    assert [len(row) for row in BPE.encode_with_dropout(TEXT, 0.9999, 1)] == [
        len(line) + 1 for line in TEXT]
    assert BPE.encode_with_dropout([], 0.1, 1) == []


def test_bpe_dropout_is_equal_in_other_processes() -> None:
    command = ("from tests.data.test_bpe_dropout import *; "
               "print(BPE.encode_with_dropout(TEXT, 0.5, 1))")
    output = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True,
                            check=True).stdout
    assert output.strip() == str(BPE.encode_with_dropout(TEXT, 0.5, 1))


def test_bpe_dropout_without_dropout_equals_the_library() -> None:
    lines = ["", "  ", "the unknown 日本 dog日", " dog\u2581a  dog"]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=model, vocab_size=310, model_type="bpe",
        byte_fallback=True, pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS, minloglevel=2)
    for tokenizer in (BPE, Tokenizer(model.getvalue())):
        assert tokenizer.encode_with_dropout(lines, 0, 1) == tokenizer.encode(lines)


def test_bpe_dropout_rate_is_a_share_of_merges() -> None:
    # The vocabulary has characters, the blank, special tokens and a single merge.
    letters = len(set("".join(TEXT).replace(" ", ""))) + 1 + 4
    tokenizer = Tokenizer.fit(TEXT, letters + 1)
    lines = ["der kleine Hund läuft ."] * 4000
    longest, least = (sum(map(len, tokenizer.encode_with_dropout(lines, rate, 3)))
                      for rate in (0.9999999, 0))
    result = sum(map(len, tokenizer.encode_with_dropout(lines, 0.3, 3)))
    assert least < longest and (result - least) / (longest - least) == pytest.approx(0.3, abs=0.03)


def test_retokenize_depends_on_seed_and_epoch_only(spec: DataSpec) -> None:
    corpus = load_corpus(spec)
    first = retokenize(corpus, 0.3, 1, 0)
    is_equal: list[bool] = []

    def compare() -> None:
        retokenize(corpus, 0.3, 2, 0)
        split = retokenize(corpus, 0.3, 1, 0)
        is_equal.append((split.source_ids, split.target_ids)
                        == (first.source_ids, first.target_ids))

    compare()
    thread = Thread(target=compare)
    thread.start()
    thread.join()
    assert is_equal == [True, True]
    for seed, epoch in ((1, 1), (2, 0)):
        other = retokenize(corpus, 0.3, seed, epoch)
        assert other.source_ids != first.source_ids and other.target_ids != first.target_ids


def test_retokenize_keeps_order_and_max_length(spec: DataSpec) -> None:
    corpus = load_corpus(spec.replace(max_length=9))
    split = retokenize(corpus, 0.5, 1, 0)
    assert len(split) == len(corpus.train) and max(split.target_ids.lengths) == 9
    whole = np.flatnonzero(split.target_ids.lengths < 9)
    assert [corpus.tokenizer.decode([split.target_ids[i]])[0] for i in whole] == [
        corpus.train.target_text[i] for i in whole]


def test_bpe_dropout_refuses_unigram_models() -> None:
    assert not BPE.is_unigram
    with refuses("fixed-tokens", "unigram", key="recipe.subword_dropout"):
        Tokenizer.fit(TEXT, 42, "unigram").encode_with_dropout(TEXT, 0.1, 1)
