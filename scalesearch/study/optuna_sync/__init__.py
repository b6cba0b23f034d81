"""Trials in Optuna's words: the study that samplers read, and the export.

May import ``trials`` and ``config``.
"""
