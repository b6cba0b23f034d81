"""Figures: trade-offs, populations, sweeps, audits, and the style of them all.

May import the tables and labels of :mod:`scalesearch.report`.
"""
