"""Trials of other studies: warm starts. May import ``trials`` and ``config``."""
