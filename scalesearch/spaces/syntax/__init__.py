"""Text to nodes to values, each with its place in the file."""
