"""Executors of trials: in this process or with Ray.

May import ``trials`` and ``config``.
"""
