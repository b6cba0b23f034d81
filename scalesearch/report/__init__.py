"""Reports of finished studies: Pareto front, hypervolume, tables and figures."""
