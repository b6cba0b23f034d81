"""One update: gradients and loss, optimizers, rates and their schedule, means of weights.

May import the recipe, hardware and checkpoints of :mod:`scalesearch.train`; the loop over updates
is above.
"""
