"""Files of settings (studies, recipes, data) as pydantic models.

May import ``space`` and below.
"""

MAX_SEED = 2**32 - 1  # limit of the generators of NumPy; those of Python and PyTorch accept more
