"""Updates: gradients of batches, clipped and applied.

Shapes: B sentences, T target positions, N target tokens without padding, ``top`` soft targets per
token.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from scalesearch.blocks.core import Block
from scalesearch.blocks.mixture import Mixture
from scalesearch.data import PAD, Batch
from scalesearch.data.split import IntArray
from scalesearch.nn import DropoutRates, build_model
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.nn.module import Module
from scalesearch.training import checkpoint
from scalesearch.training.hardware import (
    Hardware,
    TrainingFailedError,
    check_memory,
    is_out_of_memory,
)
from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.loss import cross_entropy
from scalesearch.training.updates.optimizers import (
    build_optimizers,
    load_optimizer_state,
    set_learning_rate,
)
from scalesearch.training.updates.parametrization import weight_scales


class Engine:
    """Model, optimizers and their update step.

    Attributes:
        batch_splits: number of pieces per batch. It is doubled when memory runs out; tokens per
            update do not change.
        n_updates: number of updates so far.
        notes: remarks for the result, such as why updates are slow.
    """

    def __init__(self, model: Seq2SeqModel, recipe: Recipe, hardware: Hardware,
                 is_capturable: bool = False) -> None:
        self.model = model
        self.recipe = recipe
        self.hardware = hardware
        model.set_attention(hardware.attention_kernel)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizers = build_optimizers(model, recipe, weight_scales(model, recipe),
                                           hardware.uses_bf16, is_capturable)
        if hardware.is_compiled:
            model.compile_layers(dynamic=not is_capturable)
        self.has_experts = any(isinstance(node.block, Mixture) for node in model.modules()
                               if isinstance(node, Module))
        self.batch_splits = 1
        self.n_updates = 0
        self.notes: list[str] = []

    def update(self, batches: list[Batch], lr: float) -> Tensor:
        """Take one step on ``batches``; return the smoothed loss per token, on the device.

        The sum of all losses is divided by the number of target tokens, so splitting batches
        changes nothing.

        Raises:
            TrainingFailedError: memory does not suffice for one sentence at a time.
        """
        loss = self._compute_gradients(batches)
        while loss is None:
            self.model.zero_grad(set_to_none=True)
            if self.batch_splits >= max(map(len, batches)):
                raise TrainingFailedError(f"out of memory on {self.hardware.name}, even with one "
                                          f"sentence at a time (batches of {self.recipe.max_tokens}"
                                          f" tokens split into {self.batch_splits} pieces)")
            self.batch_splits *= 2
            if self.hardware.device.type == "cuda":
                torch.cuda.empty_cache()
            loss = self._compute_gradients(batches)
        self._apply_gradients(lr)
        self._finish_update()
        return loss

    def _apply_gradients(self, lr: float | Tensor) -> None:
        """Clip the gradients and take the steps of the optimizers."""
        if self.recipe.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip_norm, foreach=True)
        for optimizer in self.optimizers:
            set_learning_rate(optimizer, lr)
            optimizer.step()

    def _finish_update(self) -> None:
        self.n_updates += 1

    def state(self) -> dict[str, Any]:
        """Return the state of model, optimizers and random number generators."""
        return {"model": self.model.state_dict(),
                "optimizer": [optimizer.state_dict() for optimizer in self.optimizers],
                "parts": self.batch_splits, "updates": self.n_updates,
                "uses_bf16": self.hardware.uses_bf16, "random": checkpoint.get_random_state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of :meth:`state`."""
        self.model.load_state_dict(state["model"])
        for optimizer, stored in zip(self.optimizers, state["optimizer"], strict=True):
            load_optimizer_state(optimizer, stored)
        self.batch_splits = state["parts"]
        self.n_updates = state["updates"]
        checkpoint.set_random_state(state["random"])

    def loss_sum(self, batch: Batch, smoothing: float) -> Tensor:
        """Sum the cross-entropy over the target tokens of a batch, in nats.

        In training with R-Drop it is the mean of two passes, plus their distance; see
        :func:`cross_entropy`.
        """
        to_device = self.hardware.to_device
        alpha = self.recipe.rdrop if self.model.training else 0.0
        passes = 2 if alpha else 1
        # Found on the host: on a GPU, each update would wait for the previous one.
        positions = np.flatnonzero(batch.target_out != PAD)  # (N,)
        # (N · passes,)
        all_positions = (positions[:, None] + np.arange(passes) * batch.target_out.size).ravel()
        with self.hardware.autocast():
            inputs = (to_device(np.tile(ids, (passes, 1)))
                      for ids in (batch.source, batch.target_in))
            states = self._states(*inputs)  # (passes · B, T, d)
            hidden = states.flatten(0, 1).index_select(0, to_device(all_positions))
            label_ids, weights = self._mix_soft_labels(batch, positions)
            labels = to_device(label_ids.repeat(passes, 0))
            label_weights = None if weights is None else to_device(weights.repeat(passes, 0))
            losses = [cross_entropy(states, matrix, bias, target, smoothing, rdrop_alpha=alpha,
                                    label_weights=label_weights,
                                    logit_limit=self.model.logit_limit)
                      for states, matrix, bias, target in self.model.softmax_terms(hidden, labels)]
            loss = (losses[0] if len(losses) == 1 else torch.stack(losses).sum()) / passes
            return self._with_balance_loss(loss, batch.tokens)

    def _with_balance_loss(self, loss: Tensor, num_tokens: int | Tensor) -> Tensor:
        """Add the balance losses of mixtures of experts, per target token, in training."""
        if not (self.model.training and self.has_experts and self.recipe.balance_loss):
            return loss
        return loss + self.recipe.balance_loss * num_tokens * self.model.balance_loss()

    def _mix_soft_labels(
            self, batch: Batch, positions: IntArray) -> tuple[IntArray, IntArray | None]:
        """Return labels (N,) at ``positions`` (N,).

        In training with soft targets, return labels (N, 1 + top) and their weights (N, 1 + top).
        """
        labels = batch.target_out.ravel()[positions]
        weight = self.recipe.distillation_weight
        if batch.soft_targets is None or not self.model.training or not weight:
            return labels, None
        ids, probabilities = (array.reshape(-1, array.shape[-1])[positions]
                              for array in (batch.soft_targets.ids,
                                            batch.soft_targets.probabilities))
        label_weight = np.full((len(positions), 1), 1 - weight, np.float32)
        return np.hstack([labels[:, None], ids]), np.hstack(
            [label_weight, np.float32(weight) * probabilities])

    def _states(self, source: Tensor, target: Tensor) -> Tensor:
        states: Tensor = self.model.decode(target, self.model.encode(source))
        return states

    def _compute_gradients(self, batches: list[Batch]) -> Tensor | None:
        """Compute gradients of ``batches``; return their loss, None if memory ran out."""
        update_tokens = sum(batch.tokens for batch in batches)
        self.model.zero_grad(set_to_none=True)
        try:
            total = torch.zeros((), device=self.hardware.device)
            for batch in batches:
                for piece in split_batch(batch, self.batch_splits):
                    loss: Any = self.loss_sum(piece, self.recipe.label_smoothing) / update_tokens
                    loss.backward()
                    total += loss.detach()
            return total
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # Memory that the exception and its frames held is only free here.
        return None


def build_initial_model(block: Block, vocab: int, recipe: Recipe, seed: int) -> Any:
    """Build the model before its first update; seeds the generators of PyTorch."""
    check_memory(block, vocab)
    torch.manual_seed(seed)
    rates = DropoutRates(recipe.dropout, recipe.attention_dropout, recipe.activation_dropout)
    model = build_model(block, vocab=vocab, init=recipe.init, seed=seed, dropout=rates)
    with torch.no_grad():
        for name, scale in weight_scales(model, recipe).items():
            model.get_parameter(name).mul_(scale.init_factor)
    return model


def split_batch(batch: Batch, n_splits: int) -> list[Batch]:
    """Split ``batch`` into at most ``n_splits`` batches of similar size.

    Columns that only hold padding are removed.
    """
    if n_splits == 1:
        return [batch]
    pieces = []
    for rows in np.array_split(np.arange(len(batch)), min(n_splits, len(batch))):
        target_out = _trim(batch.target_out[rows])
        soft_targets = batch.soft_targets and batch.soft_targets.take(rows, target_out.shape[1])
        pieces.append(Batch(_trim(batch.source[rows]), _trim(batch.target_in[rows]), target_out,
                            batch.indices[rows], soft_targets))
    return pieces


def _trim(ids: IntArray) -> IntArray:
    """Remove the columns on the right of (rows, columns) that only hold padding."""
    return ids[:, : int((ids != PAD).sum(1).max())]
