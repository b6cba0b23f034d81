"""From nodes to a checked space, in two steps: bind to the schema (names, types), then check.

Overrides bind their values onto a bound space. Imports syntax, schema, parameters.
"""
