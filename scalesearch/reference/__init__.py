"""Costs that papers report, and the costs that scalesearch computes."""

from scalesearch.reference.recompute import (
    AGREEMENT_LEVELS,
    COMMON_PROTOCOL,
    Agreement,
    RecomputedCost,
    classify_agreement,
    recompute,
)
from scalesearch.reference.reported_costs import (
    PAPERS,
    ReportedCost,
    excluded_rows,
    load_reported_costs,
)

__all__ = ["COMMON_PROTOCOL", "PAPERS", "AGREEMENT_LEVELS", "RecomputedCost", "ReportedCost",
           "Agreement", "classify_agreement", "excluded_rows", "load_reported_costs", "recompute"]
