"""``random``: every parameter uniform, log-uniform for log ranges, within the feasible region where it is known."""

from scalesearch.samplers.ask import Ask
from scalesearch.samplers.base import SheetSampler
from scalesearch.samplers.sheet import Sheet


class RandomDraws(SheetSampler):
    """Proposals that learn nothing."""

    def propose(self, ask: Ask) -> Sheet:
        return self.sample(ask)
