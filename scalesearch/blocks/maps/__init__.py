"""Linear maps of features that replace a matrix.

This package may import the other blocks, except mixers, networks and layers.
"""
