"""Updates: gradients of some batches, clipped and applied; batches are split where memory runs out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scalesearch.data import PAD, Batch
from scalesearch.data.split import IntArray
from scalesearch.nn import DropoutRates, build_model
from scalesearch.train import checkpoint
from scalesearch.train.hardware import Hardware, TrainingFailedError, check_memory, is_out_of_memory
from scalesearch.train.recipe import Recipe
from scalesearch.train.updates.loss import cross_entropy
from scalesearch.train.updates.optimizers import build_optimizers
from scalesearch.train.updates.parametrization import weight_scales


@dataclass(frozen=True)
class Shard:
    """Part of an update that one process computes.

    Attributes:
        batches: of this process. tokens: real target tokens of the batches of all processes.
        max_sentences: sentences of the longest batch of any process.
    """

    batches: list[Batch]
    update_tokens: int
    max_sentences: int


class Engine:
    """Model and optimizer, and how they take a step; the model's attention is that of the hardware.

    Attributes:
        parts: pieces that each batch is cut into; doubled when memory runs out, tokens per update
            stay the same.
    """

    def __init__(self, model: Any, recipe: Recipe, hardware: Hardware) -> None:
        self.model = model
        self.recipe = recipe
        self.hardware = hardware
        model.set_attention(hardware.attention_kernel)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizers = build_optimizers(model, recipe, weight_scales(model, recipe),
                                           hardware.uses_bf16)
        self.compute_states = torch.compile(self._states,
                                            dynamic=True) if hardware.is_compiled else self._states
        self.batch_splits = 1

    def update(self, batches: list[Batch], lr: float) -> Tensor:
        """Takes one step on ``batches``; returns the smoothed loss per token, on the device.

        The sum of all losses is divided by all real target tokens, so that how batches are cut
        changes nothing.

        Raises:
            TrainingFailed: there is no memory even for one sentence at a time.
        """
        return self.step(Shard(batches, sum(batch.tokens for batch in batches),
                               max(map(len, batches))), lr)

    def step(self, shard: Shard, lr: float) -> Tensor:
        """Takes one step on ``shard``; see :meth:`update`."""
        loss = self._compute_gradients(shard)
        while loss is None:
            self._split_batches(shard)
            loss = self._compute_gradients(shard)
        if self.recipe.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip_norm, foreach=True)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * group["scale"]
            optimizer.step()
        return loss

    def follower_seconds(self) -> float:
        """CPU seconds of other processes since the last call."""
        return 0.0

    def state(self) -> dict[str, Any]:
        """State that the next update depends on, besides its batches and learning rate."""
        return {"model": self.model.state_dict(),
                "optimizer": [each.state_dict() for each in self.optimizers],
                "parts": self.batch_splits, "random": checkpoint.get_random_state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores what :meth:`state` returned."""
        self.model.load_state_dict(state["model"])
        for optimizer, kept in zip(self.optimizers, state["optimizer"], strict=True):
            optimizer.load_state_dict(kept)
        self.batch_splits = state["parts"]
        checkpoint.set_random_state(state["random"])

    def loss_sum(self, batch: Batch, smoothing: float) -> Tensor:
        """Cross-entropy summed over the real target tokens of a batch, in nats.

        In training under R-Drop of two passes, in the mean, and how far they differ; see
        :func:`cross_entropy`.
        """
        tensor = self.hardware.to_device
        alpha = self.recipe.rdrop if self.model.training else 0.0
        passes = 2 if alpha else 1
        # Found on the host: finding it on a GPU would make every update wait for the one before.
        real = np.flatnonzero(batch.target_out != PAD)
        places = (real[:, None] + np.arange(passes) * batch.target_out.size).ravel()
        with self.hardware.autocast():
            states = self.compute_states(*(tensor(np.tile(side, (passes, 1)))
                                           for side in (batch.source, batch.target_in)))
            hidden = states.flatten(0, 1).index_select(0, tensor(places))
            labels, shares = (part if part is None else tensor(part.repeat(passes, 0))
                              for part in self._mix_soft_labels(batch, real))
            losses = [cross_entropy(*term, smoothing, rdrop_alpha=alpha, label_weights=shares)
                      for term in self.model.softmax_terms(hidden, labels)]
            return (losses[0] if len(losses) == 1 else torch.stack(losses).sum()) / passes

    def _mix_soft_labels(self, batch: Batch, real: IntArray) -> tuple[IntArray, IntArray | None]:
        """Labels (N,) at the places ``real``; in training with soft targets, (N, 1 + top) and what share each has."""
        labels = batch.target_out.ravel()[real]
        share = self.recipe.distillation_weight
        if batch.soft_targets is None or not self.model.training or not share:
            return labels, None
        ids, probabilities = (part.reshape(-1, part.shape[-1])[real]
                              for part in (batch.soft_targets.ids,
                                           batch.soft_targets.probabilities))
        own = np.full((len(real), 1), 1 - share, np.float32)
        return np.hstack([labels[:, None], ids]), np.hstack(
            [own, np.float32(share) * probabilities])

    def _states(self, source: Tensor, target: Tensor) -> Tensor:
        return self.model.decode(target, self.model.encode(source))

    def _compute_gradients(self, shard: Shard) -> Tensor | None:
        """Gradients of the shard; returns its part of the loss, None if memory ran out."""
        self.model.zero_grad(set_to_none=True)
        try:
            total = torch.zeros((), device=self.hardware.device)
            for piece in (piece for batch in shard.batches
                          for piece in split_batch(batch, self.batch_splits)):
                loss = self.loss_sum(piece, self.recipe.label_smoothing) / shard.update_tokens
                loss.backward()
                total += loss.detach()
            return total
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # Only here, with the exception and the frames that it held gone, is what they held free.
        return None

    def _split_batches(self, shard: Shard) -> None:
        self.model.zero_grad(set_to_none=True)
        if self.batch_splits >= shard.max_sentences:
            raise TrainingFailedError(
                f"out of memory on {self.hardware.name}, even with one sentence at a time "
                f"(batches of {self.recipe.max_tokens} tokens cut into {self.batch_splits} pieces)"
            )
        self.batch_splits *= 2
        if self.hardware.device.type == "cuda":
            torch.cuda.empty_cache()


def build_initial_model(block: Any, vocab: int, recipe: Recipe, seed: int) -> Any:
    """Builds the model before its first update; seeds all random number generators of PyTorch."""
    check_memory(block, vocab)
    torch.manual_seed(seed)
    rates = DropoutRates(recipe.dropout, recipe.attention_dropout, recipe.activation_dropout)
    model = build_model(block, vocab=vocab, init=recipe.init, seed=seed, dropout=rates)
    with torch.no_grad():
        for name, scale in weight_scales(model, recipe).items():
            model.get_parameter(name).mul_(scale.init_factor)
    return model


def split_batch(batch: Batch, n_splits: int) -> list[Batch]:
    """Cuts ``batch`` into at most ``n_splits`` batches of like size, without columns of padding alone."""
    if n_splits == 1:
        return [batch]
    rows = np.array_split(np.arange(len(batch)), min(n_splits, len(batch)))
    return [Batch(_trim(batch.source[r]), _trim(batch.target_in[r]), _trim(batch.target_out[r]),
                  batch.indices[r],
                  batch.soft_targets and batch.soft_targets.take(r, _width(batch.target_out[r])))
            for r in rows]


def _trim(ids: IntArray) -> IntArray:
    return ids[:, : _width(ids)]


def _width(ids: IntArray) -> int:
    return int((ids != PAD).sum(1).max())
