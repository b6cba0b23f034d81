"""What other runtimes make of an architecture: structure alone, no weights.

May import ``blocks``.
"""

# tokens of a side, as data files cut them and artifacts take them, unless told otherwise
MAX_SOURCE_TOKENS = 256
