"""Model of ``bayes``: coordinates, surrogates, expected improvements, acquisition function.

It may import histories and candidates of the samplers, and ``scalesearch.pareto``.
"""
