"""Exact costs of models: breakdowns, protocols and populations."""

from scalesearch.cost.breakdown import CostBreakdown, LeafCost, evaluate_cost
from scalesearch.cost.protocol import PROTOCOLS, Protocol, find_protocol, load_protocol

__all__ = ["PROTOCOLS", "CostBreakdown", "LeafCost", "Protocol", "evaluate_cost", "find_protocol",
           "load_protocol"]
