"""Further seeds: which trials get them, and what they show.

May import ``trials`` and ``config``.
"""
