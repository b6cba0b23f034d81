"""Maps from features to features: what stands where there is a matrix.

May import the blocks beside this folder.
"""
