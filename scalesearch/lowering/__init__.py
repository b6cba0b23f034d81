"""What other runtimes make of an architecture: structure alone, no weights. May import ``blocks``."""
