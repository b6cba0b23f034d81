"""Keys of the language, their types, and the bound tree. Imports syntax."""
