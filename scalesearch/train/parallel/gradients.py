"""Updates that several processes share.

The sentences of an update are the same as with one process. Each process accumulates the gradients
of its shard. Then the processes exchange whether memory sufficed and which weights were used, and
sum the gradients in one call. Summing during the backward pass would overlap both, but a process
that runs out of memory would leave the others waiting.
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
    """Engine that computes one shard; all processes hold the same weights."""

    def __init__(self, model: Any, recipe: Recipe, hardware: Hardware, team: Team) -> None:
        super().__init__(model, recipe, hardware)
        self.team = team
        self._follower_seconds = 0.0
        # All processes use the same seed, but different processors may round the initial weights
        # differently.
        team.call(lambda: [dist.broadcast(weight.data, 0) for weight in self.parameters])
        self._clock = time.process_time()

    def _compute_gradients(self, shard: Shard) -> Tensor | None:
        """Sum gradients of all shards; return their loss, None if memory ran out."""
        total = super()._compute_gradients(shard)
        is_used = [weight.grad is not None for weight in self.parameters]
        flags = torch.tensor([total is None, self._own_seconds(), *is_used], dtype=torch.float64)
        n_failed, seconds, *n_users = self.team.sum(flags).tolist()
        self._follower_seconds += seconds
        if n_failed or total is None:
            return None
        gradients = [total]
        for weight, users in zip(self.parameters, n_users):
            if users:  # a weight that no process used has no gradient, as in one process
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                gradients.append(weight.grad)
        vector = parameters_to_vector(gradients)
        self.team.call(lambda: dist.all_reduce(vector))
        vector_to_parameters(vector, gradients)
        return total

    def _own_seconds(self) -> float:
        """Return the CPU seconds of a follower since the last call; 0 for the leader."""
        before = self._clock
        self._clock = time.process_time()
        return self._clock - before if self.team.rank else 0.0


class LeaderEngine(ParallelEngine):
    """Engine of the leader, which directs the followers."""

    def update(self, batches: list[Batch], lr: float) -> Tensor:
        """Take one step on ``batches``, divided among all processes."""
        shards = split_into_shards(batches, self.team.size)
        self.team.scatter([("step", (shard, lr, self.batch_splits)) for shard in shards])
        return self.step(shards[0], lr)

    def follower_seconds(self) -> float:
        """Return the CPU seconds of followers since the last call.

        Those of the last update are reported with the next update.
        """
        seconds = self._follower_seconds
        self._follower_seconds = 0.0
        return seconds

    def state(self) -> dict[str, Any]:
        """Return the state, with the random number generators of the followers."""
        self.team.broadcast(("random", None))
        return super().state() | {"others": self.team.gather(None)[1:]}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of :meth:`state`, in all processes."""
        shared = {key: state[key] for key in ("model", "optimizer", "parts")}
        self.team.scatter([("restore", shared | {"random": random})
                           for random in (None, *state["others"])])
        super().restore(state)


def split_into_shards(batches: list[Batch], size: int) -> list[Shard]:
    """Divide ``batches`` among ``size`` processes.

    Processes get whole batches in turn, then pieces of the remaining batches. A shard may be
    empty, for example if a batch has fewer sentences than there are processes.
    """
    n_whole = len(batches) - len(batches) % size
    parts = [batches[rank:n_whole:size] for rank in range(size)]
    for batch in batches[n_whole:]:
        for part, piece in zip(parts, split_batch(batch, size)):
            part.append(piece)
    max_sentences = max(len(batch) for part in parts for batch in part)
    return [Shard(part, sum(batch.tokens for batch in batches), max_sentences) for part in parts]


def build_leader(model: Any, architecture: Any, vocab: int, recipe: Recipe, seed: int,
                 hardware: Hardware, team: Team) -> LeaderEngine:
    """Build the engine of the leader, and make every follower build the same model."""
    team.broadcast(("build", (architecture.block, vocab, recipe, seed)))
    return LeaderEngine(model, recipe, hardware, team)


def run_follower(team: Team) -> None:
    """Follow the messages of the leader; the first is to build the model.

    Raises:
        ProcessLostError: the leader or another process ended.
    """
    engine: Any = None
    while True:
        match team.receive():
            case "build", arguments:
                engine = _build_follower_engine(team, *arguments)
            case "random", _:
                team.gather(checkpoint.get_random_state())
            case "restore", state:
                engine.restore(state)
            case "step", (shard, lr, batch_splits):
                engine.batch_splits = batch_splits
                # out of memory in all processes; the leader reports it
                with suppress(TrainingFailedError):
                    engine.step(shard, lr)
            case _:
                return


def _build_follower_engine(team: Team, block: Any, vocab: int, recipe: Recipe,
                           seed: int) -> ParallelEngine:
    """Build the engine of a follower, with its own dropout."""
    hardware = Hardware.from_recipe(recipe)
    model = build_initial_model(block, vocab, recipe, seed)
    engine = ParallelEngine(model.to(hardware.device).train(), recipe, hardware, team)
    torch.manual_seed(
        int(np.random.SeedSequence([seed % 2**64, team.rank]).generate_state(1, np.uint64)[0] >> 1))
    return engine
