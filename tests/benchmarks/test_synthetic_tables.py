"""Synthetic tables: early losses mislead by the type of the table."""

import sys

import numpy as np
import pytest
from scipy.stats import spearmanr

from tests.docs.blocks import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
from synthetic_tables import TYPES, make_table


def correlation(table, share):
    """Mean rank correlation within a vocabulary of the loss at ``share`` and the final loss."""
    by_vocabulary = {}
    for row in table.rows:
        by_vocabulary.setdefault(row.unit, []).append((row.loss(share), -row.values["score"]))
    return np.mean([spearmanr(*zip(*pairs))[0] for pairs in by_vocabulary.values()])


@pytest.mark.parametrize("table_type", TYPES)
def test_early_ranks_mislead_more_than_late_ones(table_type):
    table = make_table(table_type, 1)
    early, late = correlation(table, 1 / 9), correlation(table, 1)
    assert early < late and late > 0.85
    assert early < 0.6 or table_type == "diverged"
    assert correlation(make_table("size", 1), 1 / 9) < 0


def test_tables_depend_on_the_seed_only():
    first, same, other = make_table("rate", 1), make_table("rate", 1), make_table("rate", 2)
    assert first.rows == same.rows and first.rows != other.rows
