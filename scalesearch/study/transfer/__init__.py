"""Trials taken over from other studies: warm starts and forks.

May import ``trials`` and ``config``.
"""
