"""Updates shared by several processes; their sentences are the same as with one process.

Each process accumulates the gradients of its shard by itself. Then all learn whether memory
sufficed and which weights have been used, and the gradients are summed at once. Summing them during
the backward pass would overlap the two, but a process that runs out of memory there would leave the
others waiting.
"""

import time
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from scalesearch.data import Batch
from scalesearch.train import checkpoint
from scalesearch.train.hardware import Hardware, TrainingFailedError
from scalesearch.train.parallel.team import Team
from scalesearch.train.recipe import Recipe
from scalesearch.train.updates.engine import Engine, Shard, build_initial_model, split_batch


class ParallelEngine(Engine):
    """Engine that computes one process's shard of each update; all processes hold the same weights."""

    def __init__(self, model: Any, recipe: Recipe, hardware: Hardware, team: Team) -> None:
        super().__init__(model, recipe, hardware)
        self.team = team
        self._follower_seconds = 0.0
        # Of one seed, but other processors may round the first weights otherwise.
        team.call(lambda: [dist.broadcast(weight.data, 0) for weight in self.parameters])
        self._clock = time.process_time()

    def _compute_gradients(self, shard: Shard) -> Tensor | None:
        """Gradients of all shards; returns their loss, or None if memory ran out anywhere."""
        total = super()._compute_gradients(shard)
        used = [weight.grad is not None for weight in self.parameters]
        sums = self.team.sum(torch.tensor([total is None, self._own_seconds(), *used],
                                          dtype=torch.float64)).tolist()
        self._follower_seconds += sums[1]
        if sums[0] or total is None:
            return None
        gradients = [total]
        for weight, users in zip(self.parameters, sums[2:]):
            if users:  # a weight that no process used has no gradient, as in one process
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                gradients.append(weight.grad)
        summed = parameters_to_vector(gradients)
        self.team.call(lambda: dist.all_reduce(summed))
        vector_to_parameters(summed, gradients)
        return total

    def _own_seconds(self) -> float:
        """CPU seconds of a follower since the last call; 0 for the leader."""
        before = self._clock
        self._clock = time.process_time()
        return self._clock - before if self.team.rank else 0.0


class LeaderEngine(ParallelEngine):
    """Engine of the leader, which directs the followers."""

    def update(self, batches: list[Batch], lr: float) -> Tensor:
        """Takes one step on ``batches``, divided among all processes; see :meth:`Engine.update`."""
        shards = split_into_shards(batches, self.team.size)
        self.team.scatter([("step", (shard, lr, self.batch_splits)) for shard in shards])
        return self.step(shards[0], lr)

    def follower_seconds(self) -> float:
        """CPU seconds of the followers since the last call.

        Those of the last update come with the next.
        """
        seconds = self._follower_seconds
        self._follower_seconds = 0.0
        return seconds

    def state(self) -> dict[str, Any]:
        """State as of :meth:`Engine.state`, with the followers' random number generators."""
        self.team.broadcast(("random", None))
        return super().state() | {"others": self.team.gather(None)[1:]}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores what :meth:`state` returned, in all processes."""
        same = {key: state[key] for key in ("model", "optimizer", "parts")}
        self.team.scatter([("restore", same | {"random": random})
                           for random in (None, *state["others"])])
        super().restore(state)


def split_into_shards(batches: list[Batch], size: int) -> list[Shard]:
    """Divides ``batches`` among processes: whole ones in turn, then the pieces of the remaining ones.

    A shard may be empty, as when a batch has fewer sentences than there are processes.
    """
    whole = len(batches) - len(batches) % size
    parts = [batches[rank:whole:size] for rank in range(size)]
    for batch in batches[whole:]:
        for part, piece in zip(parts, split_batch(batch, size)):
            part.append(piece)
    rows = max(len(batch) for part in parts for batch in part)
    return [Shard(part, sum(batch.tokens for batch in batches), rows) for part in parts]


def build_leader(model: Any, architecture: Any, vocab: int, recipe: Recipe, seed: int,
                 hardware: Hardware, team: Team) -> LeaderEngine:
    """Makes the leader's engine, and every follower build the same model."""
    team.broadcast(("build", (architecture.block, vocab, recipe, seed)))
    return LeaderEngine(model, recipe, hardware, team)


def run_follower(team: Team) -> None:
    """Follows the leader's messages until the one to end; the first is to build.

    Raises:
        ProcessLost: the leader or another process is gone.
    """
    engine: Any = None
    while True:
        match team.receive():
            case "build", arguments:
                engine = _build_engine(team, *arguments)
            case "random", _:
                team.gather(checkpoint.get_random_state())
            case "restore", state:
                engine.restore(state)
            case "step", (shard, lr, parts):
                engine.parts = parts
                # memory suffices in no process then, and the leader reports it
                with suppress(TrainingFailedError):
                    engine.step(shard, lr)
            case _:
                return


def _build_engine(team: Team, block: Any, vocab: int, recipe: Recipe, seed: int) -> ParallelEngine:
    """Makes a follower's engine, with dropout of its own."""
    hardware = Hardware.from_recipe(recipe)
    model = build_initial_model(block, vocab, recipe, seed)
    engine = ParallelEngine(model.to(hardware.device).train(), recipe, hardware, team)
    torch.manual_seed(
        int(np.random.SeedSequence([seed % 2**64, team.rank]).generate_state(1, np.uint64)[0] >> 1))
    return engine
