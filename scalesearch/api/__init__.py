"""Python API of ``import scalesearch``.

It may import everything except the command line.
"""
