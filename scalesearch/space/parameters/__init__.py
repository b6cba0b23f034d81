"""Values of parameters, number of configurations, constraints. Imports syntax and schema."""
