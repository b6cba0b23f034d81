"""Training text cut into tokens anew, with merges left out at random."""

import numpy as np

from scalesearch.data.corpus import Corpus
from scalesearch.data.split import RaggedArray, Split


def retokenize(corpus: Corpus, dropout: float, seed: int, epoch: int) -> Split:
    """Training pairs as tokens of BPE-dropout, which the arguments alone decide.

    Pairs keep their places; a side that grows beyond ``max_length`` is cut there.

    Raises:
        UserError: as :meth:`Tokenizer.sample`.
    """
    texts = corpus.train.texts
    seeds = np.random.SeedSequence([seed, epoch]).generate_state(2)
    source, target = (RaggedArray.from_lists(corpus.tokenizer.encode_with_dropout(lines, dropout, int(side))).truncate(corpus.spec.max_length)
                      for lines, side in zip((texts.source, texts.target), seeds))
    return Split(source, target, lambda: texts)
