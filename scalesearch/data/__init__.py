"""Corpora, the tokenizer of both languages, and batches of sentences of like length."""

from scalesearch.data.anew import cut_anew
from scalesearch.data.batching import Batch, Batches, Feed, batches, eval_batches, make_batch, put_back
from scalesearch.data.corpus import Corpus, load_corpus
from scalesearch.data.files import default_cache
from scalesearch.data.parts import PairOfFiles
from scalesearch.data.spec import DataSpec
from scalesearch.data.split import BOS, EOS, PAD, UNK, Rows, Split
from scalesearch.data.tokenizer import Tokenizer

__all__ = ["BOS", "EOS", "PAD", "UNK", "Batch", "Batches", "Corpus", "DataSpec", "Feed", "PairOfFiles", "Rows", "Split",
           "Tokenizer", "batches", "cut_anew", "default_cache", "eval_batches", "load_corpus", "make_batch", "put_back"]
