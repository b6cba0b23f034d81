"""scalesearch: search efficient Transformer architectures under a budget."""

__version__ = "0.2.0"
