"""Inverse and what-if questions: the largest size that fits, what it trades for, costs at other sizes.

``solve`` and ``trade`` look for sizes under a budget, ``compare`` sets architectures side by side, ``sweep`` tabulates
costs over sizes and lengths, ``crossings`` says where one part overtakes another, ``cite`` gives costs as formulas.
What each returns has ``frame()``, a pandas frame.
"""

from scalesearch.whatif.cite import Citation, cite
from scalesearch.whatif.compare import Comparison, ModuleRow, compare
from scalesearch.whatif.crossings import Crossing, Crossings, crossings
from scalesearch.whatif.formulas import Formula
from scalesearch.whatif.solve import Solution, Solutions, solve
from scalesearch.whatif.sweep import Sweep, sweep
from scalesearch.whatif.trade import Trades, trade

__all__ = ["ModuleRow", "Citation", "Comparison", "Crossing", "Crossings", "Formula", "Solution", "Solutions", "Sweep",
           "Trades", "cite", "compare", "crossings", "solve", "sweep", "trade"]
