"""Checks of what a GPU does with scalesearch: ``correctness``, ``studies``, ``timings``; imports all but the tests."""
