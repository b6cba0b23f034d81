"""Report page of a study: one HTML file without external files.

Each section has a module with a function that computes its content and returns its elements.
"""
