"""Corpora, the tokenizer of both languages, and batches of sentences of like length."""

from scalesearch.data.batching import Batch, Batches, batches, eval_batches, make_batch, put_back
from scalesearch.data.corpus import Corpus, load_corpus
from scalesearch.data.parts import PairOfFiles
from scalesearch.data.paths import default_cache
from scalesearch.data.spec import DataSpec
from scalesearch.data.split import Rows, Split
from scalesearch.data.tokenizer import Tokenizer
from scalesearch.data.tokens import BOS, EOS, PAD, UNK

__all__ = [
    "BOS", "EOS", "PAD", "UNK",
    "Batch", "Batches", "Corpus", "DataSpec", "PairOfFiles", "Rows", "Split", "Tokenizer",
    "batches", "default_cache", "eval_batches", "load_corpus", "make_batch", "put_back",
]
