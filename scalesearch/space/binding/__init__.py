"""Bind a file's nodes to the schema and check them. Imports syntax, schema, parameters."""
