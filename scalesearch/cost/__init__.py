"""What a model costs, exactly: ledger, protocols, budgets."""

from scalesearch.cost.ledger import Cost, Entry, cost
from scalesearch.cost.protocol import PROTOCOLS, Protocol, find_protocol, protocol_of

__all__ = ["PROTOCOLS", "Cost", "Entry", "Protocol", "cost", "find_protocol", "protocol_of"]
