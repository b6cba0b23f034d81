"""Builds blocks from configurations. Imports parameters and scalesearch.blocks."""
