"""``random``: every question uniform, log-uniform for log ranges."""

import random
from collections.abc import Mapping
from typing import Any

from scalesearch.samplers.base import Proposer
from scalesearch.samplers.history import History


class RandomDraws(Proposer):
    """Proposals that learn nothing."""

    name = "random"

    def ask(self, number: int, history: History) -> Mapping[str, Any]:
        return self.drawn(random.Random(self.seed(number)))
