"""Embeddings: tables of tokens, and positions. May import the blocks beside this folder."""

from scalesearch.blocks.embed.adaptive import AdaptiveOutput, AdaptiveTable
from scalesearch.blocks.embed.factorised import FactorisedOutput, FactorisedTable
from scalesearch.blocks.embed.softpos import SoftPOS
from scalesearch.blocks.embed.tokens import POSITIONS, TokenEmbedding

__all__ = [
    "POSITIONS",
    "AdaptiveOutput",
    "AdaptiveTable",
    "FactorisedOutput",
    "FactorisedTable",
    "SoftPOS",
    "TokenEmbedding",
]
