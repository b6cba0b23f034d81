"""Parameter updates: gradients, loss, optimizers, learning rates, averages.

The package may import the recipe, hardware and checkpoints of :mod:`scalesearch.training`. The
training loop is there.
"""
