"""Trials of a study: value, event log, folder, records, evaluation.

May import ``config``.
"""
