"""Blocks: the parts of a model, with their costs."""

import importlib

importlib.import_module("scalesearch.blocks.mixture")  # registers a feed-forward network
