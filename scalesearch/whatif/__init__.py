"""Inverse and what-if queries about costs.

``solve`` finds the largest size within a budget, ``find_trade_offs`` sizes with equal costs.
``compare_costs`` compares architectures, ``sweep_costs`` tabulates costs over sizes and lengths.
``compare_contexts`` compares architectures over the length of the context. ``find_crossings`` finds
lengths at which one part becomes more expensive than another. ``cite`` derives formulas for costs.
All results have a method ``frame()`` that returns a pandas data frame.
"""

from scalesearch.whatif.citation import Citation, cite
from scalesearch.whatif.compare import CostComparison, ModuleRow, compare_costs
from scalesearch.whatif.contexts import ContextComparison, ContextCrossing, compare_contexts
from scalesearch.whatif.crossings import CostCrossing, CostCrossings, find_crossings
from scalesearch.whatif.formulas import Formula
from scalesearch.whatif.solve import Solution, Solutions, solve
from scalesearch.whatif.sweep import Sweep, sweep_costs
from scalesearch.whatif.trade import TradeOffs, find_trade_offs

__all__ = ["ModuleRow", "Citation", "ContextComparison", "ContextCrossing", "CostComparison",
           "compare_contexts", "CostCrossing", "CostCrossings", "Formula",
           "Solution", "Solutions", "Sweep", "TradeOffs", "cite", "compare_costs", "find_crossings",
           "solve", "sweep_costs", "find_trade_offs"]
