"""Contract tests of blocks: the checks that ours go through, for a kind of your own.

May import blocks, space, cost, feasible and nn, and torch; nothing in the package imports it.
"""

from scalesearch.testing.checks import check_bill, check_columns, check_model
from scalesearch.testing.draws import random_architecture
from scalesearch.testing.kinds import check_count, check_ffn, check_further, check_mixer
from scalesearch.testing.specimen import Specimen

__all__ = ["Specimen", "check_bill", "check_columns", "check_count", "check_ffn", "check_further",
           "check_mixer", "check_model", "random_architecture"]
