"""Verbs that need no training: costs, what fits, what would fit.

May import feasible and whatif, when a verb runs.
"""
