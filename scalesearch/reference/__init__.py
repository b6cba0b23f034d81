"""What the three papers print of their models, beside what these models cost by our ledger."""

from scalesearch.reference.recompute import COMMON, Entry, recompute
from scalesearch.reference.rows import PAPERS, Row, left_out, load_rows
from scalesearch.reference.verdict import VERDICTS, Verdict, judge

__all__ = ["COMMON", "PAPERS", "VERDICTS", "Entry", "Row", "Verdict", "judge", "left_out", "load_rows", "recompute"]
