"""Contract tests of blocks: run the checks of the library on your own blocks.

This package may import blocks, space, cost, feasible and nn; no other package imports it.
"""

from scalesearch.testing.block_sample import BlockSample
from scalesearch.testing.checks import check_costs, check_model, check_population_costs
from scalesearch.testing.random_models import random_architecture
from scalesearch.testing.registered_blocks import (
           check_count,
           check_ffn,
           check_mixer,
           check_sublayer,
)

__all__ = ["BlockSample", "check_costs", "check_population_costs", "check_count", "check_ffn",
           "check_sublayer", "check_mixer", "check_model", "random_architecture"]
