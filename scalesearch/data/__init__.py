"""Corpora, the shared tokenizer, and batches of sentences of similar length."""

from scalesearch.blocks.core import BOS, EOS, PAD, UNK
from scalesearch.data.batching import (
    Batch,
    Batches,
    BatchStream,
    eval_batches,
    make_batch,
    restore_order,
    training_batches,
)
from scalesearch.data.corpus import Corpus, load_corpus, remask, retokenize
from scalesearch.data.files import default_cache
from scalesearch.data.spec import DataSpec
from scalesearch.data.split import RaggedArray, Split
from scalesearch.data.split_files import FilePair
from scalesearch.data.tokenizer import Tokenizer

__all__ = ["BOS", "EOS", "PAD", "UNK", "Batch", "BatchStream", "Batches", "Corpus", "DataSpec",
           "FilePair", "RaggedArray", "Split", "Tokenizer", "default_cache", "eval_batches",
           "load_corpus", "make_batch", "remask", "restore_order", "retokenize", "training_batches"]
