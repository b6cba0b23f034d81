"""Keys that the language knows, their types, and the bound tree. Imports syntax."""
