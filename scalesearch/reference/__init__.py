"""What the three papers print of their models, beside what these models cost by our ledger."""

from scalesearch.reference.recompute import COMMON, VERDICTS, Entry, Verdict, judge, recompute
from scalesearch.reference.rows import PAPERS, Row, left_out, load_rows

__all__ = ["COMMON", "PAPERS", "VERDICTS", "Entry", "Row", "Verdict", "judge", "left_out", "load_rows", "recompute"]
