"""Checks of what a GPU does with scalesearch: ``correctness``, ``speed``, ``studies``; imports all but the tests."""
