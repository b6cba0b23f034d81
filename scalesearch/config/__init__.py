"""Settings in files: models of their keys, and a reader that reports every error."""

MAX_BEAM = 1000  # memory of a search is proportional to its beam
MAX_SEED = 2**32 - 1  # limit of the generators of NumPy; those of Python and PyTorch accept more
