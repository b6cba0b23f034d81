"""Non-dominated fronts, hypervolume and noise.

Imports nothing of the package but errors.
"""
