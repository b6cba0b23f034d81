"""Views of a study that runs: snapshot, time left, screens.

May import ``replicates`` and the rooms below.
"""
