"""Figures of trade-offs, populations, sweeps and audits, and their common style.

This package may import the tables and labels of :mod:`scalesearch.report`.
"""
