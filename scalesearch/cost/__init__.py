"""Exact costs of models: ledger, protocols, populations. May import space and blocks."""

from scalesearch.cost.ledger import Cost, Entry, cost
from scalesearch.cost.protocol import PROTOCOLS, Protocol, find_protocol, protocol_of

__all__ = ["PROTOCOLS", "Cost", "Entry", "Protocol", "cost", "find_protocol", "protocol_of"]
