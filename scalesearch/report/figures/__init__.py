"""Figures of trade-offs, populations, sweeps and audits, and their common style.

This package may import the tables and labels of :mod:`scalesearch.report`.
"""

from collections.abc import Mapping
from typing import Any

# format of a figure to the metadata that make its bytes reproducible; here, so that the command
# line reads the formats without importing matplotlib
FIGURE_METADATA: Mapping[str, Any] = {
    "png": {"Software": "scalesearch"}, "svg": {"Date": None, "Creator": "scalesearch"},
    "pdf": {"CreationDate": None, "Creator": "scalesearch"}}
