"""Executors: training of trials in this process or by Ray, under leases.

May import ``trials`` and ``config``.
"""
