"""Trained models as files that other runtimes load: one format a file.

May import ``train``, ``lowering`` and below.
"""
