"""The feasible part of a space: draws from it, and ways into it. Only exact_draws imports feasible and the space."""
