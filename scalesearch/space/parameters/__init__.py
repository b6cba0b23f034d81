"""Parameters asked one after another: answers, counts, constraints. Imports syntax and schema."""
