"""Updates that several processes share: the sentences of one update are those of one process alone.

Each process accumulates the gradients of its share without a word to the others. Then all agree on whether memory
sufficed, and ``DistributedDataParallel`` reduces the gradients in one backward pass that itself adds nothing. Reducing
during the last backward would overlap the two, but a process that runs out of memory there would leave the others
waiting, and a process without a batch, or a weight that only some processes used, would need a way of its own.
"""

import time
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from scalesearch.data import Batch
from scalesearch.train import checkpoint
from scalesearch.train.engine import Engine, Share, cut, first_model
from scalesearch.train.failures import TrainingFailed
from scalesearch.train.hardware import Hardware
from scalesearch.train.recipe import Recipe
from scalesearch.train.team import Team


class ParallelEngine(Engine):
    """An engine that works off one process's share of each update; all of them hold the same weights."""

    def __init__(self, model: Any, recipe: Recipe, hardware: Hardware, team: Team) -> None:
        super().__init__(model, recipe, hardware)
        self.team = team
        self.unit = torch.tensor(float(team.size), device=hardware.device)  # since DDP takes the mean
        self._elsewhere = 0.0
        team.reduce(self._meet)
        self._clock = time.process_time()

    def _meet(self) -> None:
        """Checks that all have the same model and gives all the leader's weights."""
        self.meeting = DistributedDataParallel(Meeting(self.model), gradient_as_bucket_view=True)

    def _gradients(self, share: Share) -> Tensor | None:
        """Gradients of everyone's shares, and their loss; None if memory ran out anywhere."""
        total = super()._gradients(share)
        used = [weight.grad is not None for weight in self.parameters]
        found = self.team.agree(torch.tensor([total is None, self._worked(), *used], dtype=torch.float64)).tolist()
        self._elsewhere += found[1]
        if found[0] or total is None:
            return None
        self.team.reduce(lambda: dist.all_reduce(total))
        self.team.reduce(lambda: self.meeting().backward())
        for weight, times in zip(self.parameters, found[2:]):
            if not times:
                weight.grad = None  # as in one process: the optimiser leaves it alone
        return total

    def _worked(self) -> float:
        """CPU seconds of a follower since it last said so; the leader knows its own."""
        before, self._clock = self._clock, time.process_time()
        return self._clock - before if self.team.rank else 0.0


class Leader(ParallelEngine):
    """The engine of the process that runs the training; the others do as it says."""

    def update(self, batches: list[Batch], lr: float) -> Tensor:
        """One step on ``batches``, shared out among all processes; as :meth:`Engine.update`."""
        shares = deal(batches, self.team.size)
        self.team.tell([("step", (share, lr, self.parts)) for share in shares])
        return self.step(shares[0], lr)

    def elsewhere(self) -> float:
        """CPU seconds of the other processes since the last call; those of the last update come with the next."""
        seconds, self._elsewhere = self._elsewhere, 0.0
        return seconds

    def state(self) -> dict[str, Any]:
        """As :meth:`Engine.state`, and the others' random numbers."""
        self.team.tell_all(("random", None))
        return super().state() | {"others": self.team.gather(None)[1:]}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to where :meth:`state` was taken, all together."""
        same = {key: state[key] for key in ("model", "optimizer", "parts")}
        self.team.tell([("restore", same | {"random": random}) for random in (None, *state["others"])])
        super().restore(state)


class Meeting(nn.Module):
    """A forward pass that touches every weight and whose gradients are all zero: its backward is where DDP reduces."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self) -> Tensor:
        # Of no element at all, so that a weight that is no number any more leaves the gradients what they are.
        return torch.stack([p.reshape(-1)[:0].sum() for p in self.model.parameters() if p.requires_grad]).sum()


def deal(batches: list[Batch], size: int) -> list[Share]:
    """``batches`` shared out: whole ones in turn, then the pieces of those that are left over.

    A process whose turn it is not, as when a batch has fewer sentences than there are processes, gets an empty share.
    """
    whole = len(batches) - len(batches) % size
    hands = [batches[rank:whole:size] for rank in range(size)]
    for batch in batches[whole:]:
        for hand, piece in zip(hands, cut(batch, size)):
            hand.append(piece)
    rows = max(len(batch) for hand in hands for batch in hand)
    return [Share(hand, sum(batch.tokens for batch in batches), rows) for hand in hands]


def lead(model: Any, architecture: Any, vocab: int, recipe: Recipe, seed: int, hardware: Hardware,
         team: Team) -> Leader:
    """The leader's engine; makes every follower build the same model."""
    team.tell_all(("build", (architecture.block, vocab, recipe, seed)))
    return Leader(model, recipe, hardware, team)


def follow(team: Team) -> None:
    """What every process but the leader does, until it is told to end.

    Raises:
        ProcessLost: the leader or another process is gone.
    """
    engine: ParallelEngine | None = None
    while True:
        what, how = team.hear()
        if what == "end":
            return
        if what == "build":
            engine = _built(team, *how)
        elif what == "random":
            team.gather(checkpoint.random_state())
        else:
            assert engine is not None, "the first message is to build"
            _do(engine, what, how)


def _do(engine: ParallelEngine, what: str, how: Any) -> None:
    if what == "restore":
        engine.restore(how)
        return
    share, lr, engine.parts = how
    with suppress(TrainingFailed):  # memory does not suffice for anyone then: the leader says so and decides
        engine.step(share, lr)


def _built(team: Team, block: Any, vocab: int, recipe: Recipe, seed: int) -> ParallelEngine:
    """A follower's engine, with dropout of its own."""
    hardware = Hardware.of(recipe)
    model = first_model(block, vocab, recipe, seed)
    model.set_attention(hardware.attention)
    engine = ParallelEngine(model.to(hardware.device).train(), recipe, hardware, team)
    torch.manual_seed(int(np.random.SeedSequence([seed % 2**64, team.rank]).generate_state(1, np.uint64)[0] >> 1))
    return engine
