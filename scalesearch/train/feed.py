"""Stream of training batches without end, at a position that checkpoints can store."""

from scalesearch.data import Batch, Batches, Split, batches


class Feed:
    """Batches of one epoch after the other. ``epoch`` and ``index`` are the next one's; the seed decides the order."""

    def __init__(self, split: Split, max_tokens: int, seed: int) -> None:
        self.split, self.max_tokens, self.seed = split, max_tokens, seed
        self.epoch = self.index = 0
        self._plan: Batches | None = None

    def take(self, count: int) -> list[Batch]:
        """Takes the next ``count`` batches."""
        return [self._next() for _ in range(count)]

    def seek(self, epoch: int, index: int) -> None:
        """Moves to a position."""
        self.epoch, self.index, self._plan = epoch, index, None

    def _next(self) -> Batch:
        if self._plan is None:
            self._plan = batches(self.split, self.max_tokens, self.seed, self.epoch)
        batch = self._plan[self.index]
        self.index += 1
        if self.index == len(self._plan):
            self.seek(self.epoch + 1, 0)
        return batch
