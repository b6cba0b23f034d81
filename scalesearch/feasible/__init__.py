"""Feasible candidates of a space: counts, shares, cost front and nearest ones.

Counts are exact if the space can be decomposed into sections, and estimates otherwise.
"""
