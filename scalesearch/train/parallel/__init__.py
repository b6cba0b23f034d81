"""Processes that share the updates of one model."""
