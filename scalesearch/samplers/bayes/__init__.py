"""What ``bayes`` thinks with: coordinates of sheets, surrogates, forecasts of ends, gains and what they cost.

May import the samplers' histories and sheets, and ``scalesearch.pareto``.
"""
