"""Non-dominated fronts, hypervolume and noise.

It imports nothing of the package except errors.
"""
