"""Binds a file's nodes to the schema and checks them. Imports syntax, schema, questionnaire."""
