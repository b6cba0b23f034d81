"""Inverse and what-if questions: the largest size that fits, what it trades for, costs at other sizes.

``solve`` and ``trade`` look for sizes under a budget, ``compare`` sets architectures side by side,
``sweep`` tabulates costs over sizes and lengths, ``crossings`` says where one part overtakes
another, ``cite`` gives costs as formulas. What each returns has ``frame()``, a pandas frame.
"""

from scalesearch.whatif.citation import Citation, cite
from scalesearch.whatif.compare import CostComparison, ModuleRow, compare_costs
from scalesearch.whatif.crossings import CostCrossing, CostCrossings, find_crossings
from scalesearch.whatif.formulas import Formula
from scalesearch.whatif.solve import Solution, Solutions, solve
from scalesearch.whatif.sweep import Sweep, sweep_costs
from scalesearch.whatif.trade import TradeOffs, find_trade_offs

__all__ = ["ModuleRow", "Citation", "CostComparison", "CostCrossing", "CostCrossings", "Formula",
           "Solution", "Solutions", "Sweep", "TradeOffs", "cite", "compare_costs", "find_crossings",
           "solve", "sweep_costs", "find_trade_offs"]
