"""BPE-dropout: training text that is re-tokenized with random merges left out."""

import numpy as np

from scalesearch.data.corpus import Corpus
from scalesearch.data.split import RaggedArray, Split


def retokenize(corpus: Corpus, dropout: float, seed: int, epoch: int) -> Split:
    """Tokenize the training pairs with BPE-dropout (Provilkov et al. 2020).

    The arguments determine the result. The order of the pairs stays the same. A side that becomes
    longer than ``max_length`` is truncated.

    Raises:
        UserError: see :meth:`Tokenizer.encode_with_dropout`.
    """
    texts = corpus.train.texts
    seeds = np.random.SeedSequence([seed, epoch]).generate_state(2)
    sides = []
    for lines, side_seed in zip((texts.source, texts.target), seeds):
        ids = corpus.tokenizer.encode_with_dropout(lines, dropout, int(side_seed))
        sides.append(RaggedArray.from_lists(ids).truncate(corpus.spec.max_length))
    return Split(*sides, lambda: texts)
