"""Study files: the schema of their keys, the reader, and the values that it makes.

May import no other room.
"""
