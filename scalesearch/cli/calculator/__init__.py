"""Commands that need no training: cost, feasible and solve.

They may import feasible and whatif when they run.
"""
