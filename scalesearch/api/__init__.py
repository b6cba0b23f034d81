"""What ``import scalesearch`` offers to Python. May import all but the command line."""
