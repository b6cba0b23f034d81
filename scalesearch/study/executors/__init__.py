"""Executors: train trials in this process or with Ray, under leases. May import ``trials``, ``config``."""
