"""Values of parameters, number of configurations, and constraints."""
