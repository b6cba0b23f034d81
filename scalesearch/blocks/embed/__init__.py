"""From tokens to vectors: embedding tables and positions."""

from scalesearch.blocks.embed.tokens import POSITIONS, TokenEmbedding

__all__ = ["POSITIONS", "TokenEmbedding"]
