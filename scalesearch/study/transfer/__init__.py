"""Trials of other studies: warm starts and forks. May import ``trials`` and ``config``."""
