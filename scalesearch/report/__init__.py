"""Reads finished studies: the Pareto front, its hypervolume, tables and figures."""
