"""Masked tokens of a text (Devlin et al. 2019, section 3.1)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[Any]
PAD, MASK, FIRST_WORD = 0, 2, 4  # MASK is BOS, which windows of text do not contain
MASK_RATIO = 0.15  # of evaluations, whatever the recipe
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # of the selected tokens; the others are unchanged


@dataclass(frozen=True)
class Masking:
    """Random selection of the tokens that a model predicts.

    Attributes:
        vocab: size of the vocabulary.
        ratio: share of the tokens of a window, at least one.
        seed, epoch: with the index of a window, they determine its selection.
    """

    vocab: int
    ratio: float = MASK_RATIO
    seed: int = 0
    epoch: int = 0

    def counts(self, lengths: IntArray) -> IntArray:
        """Return how many tokens of windows of these ``lengths`` are selected."""
        return np.maximum(1, np.rint(self.ratio * lengths)).astype(np.int64)

    def apply(self, tokens: IntArray, indices: IntArray) -> tuple[IntArray, IntArray]:
        """Select tokens of the windows ``indices``, (B, L) with PAD on the right.

        Returns:
            The input (B, L), and the labels (B, L), which are PAD at all other tokens.
        """
        lengths = (tokens != PAD).sum(1)
        source = tokens.copy()
        labels = np.full_like(tokens, PAD)
        for row, (index, count) in enumerate(zip(indices.tolist(), self.counts(lengths))):
            rng = np.random.Generator(np.random.PCG64(
                np.random.SeedSequence([self.seed, self.epoch, index])))
            selected = rng.permutation(lengths[row])[:count]
            uniform = rng.random(count)
            words = rng.integers(min(FIRST_WORD, self.vocab - 1), self.vocab, count)
            labels[row, selected] = tokens[row, selected]
            replaced = np.where(uniform < MASK_SHARE, MASK, words)
            is_changed = uniform < MASK_SHARE + RANDOM_SHARE
            source[row, selected[is_changed]] = replaced[is_changed]
        return source, labels
