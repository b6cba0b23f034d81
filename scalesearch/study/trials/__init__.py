"""Trials of a study: value, event log, folder, records, evaluation before training.

May import ``config``.
"""
