"""The loop of a study, its setup and its dry run.

May import every other room; none may import it.
"""
