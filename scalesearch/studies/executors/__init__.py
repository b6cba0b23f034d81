"""Executors of trials: in this process, in a pool of processes, or with Ray.

May import ``trials`` and ``config``.
"""
