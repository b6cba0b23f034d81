"""The format ``huggingface``: a folder of transformers 5, whose code is bundled from the blocks of its architecture."""
