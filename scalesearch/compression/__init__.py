"""Compression of a trained model by replacing single blocks of it.

Each block is replaced alone, and the rise of the validation loss is its score. The predicted loss
of a combination is the parent's loss plus the sum of its scores. Costs are exact and additive, so
the Pareto front over predicted loss and costs is found without enumeration (Puzzle, Bercovich et
al. 2024, for encoder-decoders and parameter sharing).

- :mod:`alternatives`: what may replace a block, and the configuration of a combination;
- :mod:`initialize`: weights of a replacement, from the parent's activations;
- :mod:`library`: replacements on disk, with their scores;
- :mod:`solver`: the exact front of combinations.
"""
