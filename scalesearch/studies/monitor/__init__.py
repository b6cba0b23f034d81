"""Monitoring of a study: snapshots, remaining time, terminal output.

This package may import ``replicates`` and the packages below it.
"""
