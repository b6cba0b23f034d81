"""Several processes that share the updates of one model. Imports nothing else of train."""
