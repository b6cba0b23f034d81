"""Main loop of a study, its setup and its dry run.

Imports all other packages of ``study``.
"""
