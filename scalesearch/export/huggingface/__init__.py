"""Export format ``huggingface``: a folder for transformers 5 with its own code."""
