"""Python API of ``import scalesearch``; it may import everything except the command line."""
