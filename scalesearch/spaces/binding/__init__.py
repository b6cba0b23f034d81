"""From nodes to a checked space: bind to the schema, then check.

Overrides bind their values onto a bound space. Imports syntax, schema, parameters.
"""
