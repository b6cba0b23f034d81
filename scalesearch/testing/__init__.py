"""Contract tests of blocks: specimens of every kind, and the checks that a kind of your own can be put through.

May import blocks, space, cost, feasible and nn, and torch; nothing in the package imports it.
"""

from scalesearch.testing.catalogue import CATALOGUE, Specimen
from scalesearch.testing.checks import check_bill, check_columns, check_model
from scalesearch.testing.draws import covering, random_architecture
from scalesearch.testing.kinds import check_count, check_ffn, check_mixer

__all__ = [
    "CATALOGUE",
    "Specimen",
    "check_bill",
    "check_columns",
    "check_count",
    "check_ffn",
    "check_mixer",
    "check_model",
    "covering",
    "random_architecture",
]
