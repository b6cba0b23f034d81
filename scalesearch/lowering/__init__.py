"""Plans of architectures for other runtimes, without weights.

This package may import ``blocks``.
"""

# default limit of the tokens of a sentence, in data files and in exported models
MAX_SOURCE_TOKENS = 256
# default limit of a translation: FACTOR · source tokens (with EOS) + EXTRA
LENGTH_FACTOR = 1.5
EXTRA_LENGTH = 10
