"""Model of ``bayes``: coordinates, surrogates, acquisition function.

It may import histories and candidates of the samplers, and ``scalesearch.pareto``.
"""
