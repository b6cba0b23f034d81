"""Answers to the blocks that they describe. Imports questionnaire and scalesearch.blocks."""
