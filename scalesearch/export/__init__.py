"""Export of trained models to files that other runtimes load.

May import ``train``, ``lowering`` and below.
"""
