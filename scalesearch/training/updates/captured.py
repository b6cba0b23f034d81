"""Updates on batches of fixed shapes, which a GPU runs as CUDA graphs.

A small model leaves a GPU idle for most of an eager update, because Python issues kernels more
slowly than they run. A CUDA graph issues all kernels of an update at once. Its tensors have fixed
addresses and shapes, so batches come in few shapes (:class:`scalesearch.data.batching.Buckets`),
padding is excluded by row weights of 0, and everything that changes between updates is a tensor:
token ids, learning rate, number of tokens.

The first update of a shape runs eagerly and the second one is captured; the numbers are equal to
the last bit. Without a GPU all updates run eagerly, so everything but the capture is tested there.

Shapes: B rows, T columns, ``top`` soft targets per token.
"""

import copy
import time
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scalesearch.blocks.embedding import AdaptiveOutput
from scalesearch.data import PAD, Batch, Corpus
from scalesearch.data.batching import Buckets, PlannedBatch
from scalesearch.nn.graphs import GraphRunner
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.training.checkpoint import get_random_state, set_random_state
from scalesearch.training.hardware import Hardware, is_out_of_memory
from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.engine import Engine
from scalesearch.training.updates.loss import cross_entropy
from scalesearch.training.updates.optimizers import BASIS_UPDATE_INTERVAL, MatrixOptimizer
from scalesearch.training.updates.resident_data import (
    MAX_SHARE,
    ResidentSplit,
    copy_to,
    resident_bytes,
)

TIMED_UPDATES = 20  # per precision


def choose_buckets(corpus: Corpus, recipe: Recipe) -> Buckets:
    """Choose the fixed shapes of the training batches of a run."""
    max_length = corpus.spec.max_length if recipe.subword_dropout else None
    return Buckets.for_split(corpus.train, recipe.max_tokens, max_length)


class StaticBatch:
    """Tensors on the device that hold one batch after another of the same shape.

    Attributes:
        source: (B, S).
        ids: (2, B, T) decoder input and labels.
        soft_targets: ids and probabilities, each (B, T, top), or None.
        rows: (B,) indices of the pairs, -1 for rows of padding, if the text is on the device.
        text: the text on the device, or None.
    """

    def __init__(self, shape: tuple[int, int], source_width: int, n_soft_targets: int,
                 device: torch.device, text: ResidentSplit | None) -> None:
        self.source = torch.zeros((shape[0], source_width), dtype=torch.int64, device=device)
        self.ids = torch.zeros((2, *shape), dtype=torch.int64, device=device)
        self.rows = torch.full(shape[:1], -1, dtype=torch.int64, device=device)
        self.text = text
        self.soft_targets: tuple[Tensor, Tensor] | None = None
        if n_soft_targets:
            soft_ids = torch.zeros((*shape, n_soft_targets), dtype=torch.int64, device=device)
            self.soft_targets = soft_ids, torch.zeros_like(soft_ids, dtype=torch.float32)

    def load(self, batch: Batch) -> None:
        """Copy a batch, or the indices of its pairs, to the device, without waiting for it."""
        if self.text is not None:
            rows = np.full(len(self.rows), -1)
            rows[: len(batch)] = batch.indices
            copy_to(self.rows, rows)
            return
        copy_to(self.source, batch.source)
        copy_to(self.ids, np.stack([batch.target_in, batch.target_out]))
        if self.soft_targets is not None:
            assert batch.soft_targets is not None
            ids, probabilities = self.soft_targets
            copy_to(ids, batch.soft_targets.ids)
            copy_to(probabilities, batch.soft_targets.probabilities)

    def gather(self) -> None:
        """Gather the batch from the text on the device; it can be captured."""
        if self.text is None:
            return
        self.text.gather(self.rows, self.source, self.ids)
        if self.soft_targets is not None:
            self.text.gather_soft_targets(self.rows, *self.soft_targets)


class CapturedEngine(Engine):
    """Engine for batches of fixed shapes.

    It falls back to the updates of :class:`Engine`, on the same batches, if memory runs out; it
    stays eager if an update cannot be captured. ``notes`` has the reason.
    """

    def __init__(self, model: Seq2SeqModel, recipe: Recipe, hardware: Hardware) -> None:
        super().__init__(model, recipe, hardware, is_capturable=True)
        device = hardware.device
        self.lr = torch.zeros((), device=device)
        self.token_count = torch.ones((), device=device)
        self.loss = torch.zeros((), device=device)
        self.inputs: dict[Hashable, StaticBatch] = {}
        self.text: ResidentSplit | None = None
        self.max_text_bytes = max_text_bytes(device)
        self.runner = GraphRunner(device, "updates", self.notes)
        self.has_static_gradients = False
        self.has_fixed_shapes = True
        output = model.output.block
        if isinstance(output, AdaptiveOutput) and len(output.bands()) > 1:
            self.use_exact_shapes("adaptive softmax selects rows by their labels")

    def update(self, batches: list[Batch], lr: float) -> Tensor:
        if not self.has_fixed_shapes:
            return super().update(batches, lr)
        self.lr.fill_(lr)
        self.token_count.fill_(sum(batch.tokens for batch in batches))
        try:
            if len(batches) == 1:
                shape = self._load(batches[0])
                self.runner.run(("update", shape), self._update_once, shape)
            else:
                if not self.has_static_gradients:
                    self.model.zero_grad(set_to_none=True)
                self.loss.zero_()
                for batch in batches:
                    shape = self._load(batch)
                    if self.has_static_gradients:
                        self.runner.run(("gradients", shape), self._add_gradients, shape)
                    else:
                        self._add_gradients(shape)
                self.runner.run(("apply",), self._apply_accumulated)
                self.has_static_gradients = True  # they keep their addresses from now on
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self.use_exact_shapes("out of memory with batches of fixed shapes")
        else:
            self._finish_update()
            return self.loss.clone()
        return super().update(batches, lr)

    def use_exact_shapes(self, reason: str) -> None:
        """Run all later updates as :class:`Engine` does, which can split batches."""
        self.notes.append(f"updates are eager: {reason}")
        self.has_fixed_shapes = False
        self._discard_graphs()
        self.model.zero_grad(set_to_none=True)
        if self.hardware.is_compiled:
            self.model.compile_layers(dynamic=True)
        if self.runner.is_active:
            torch.cuda.empty_cache()

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._discard_graphs()  # the tensors of the optimizers are new

    def _discard_graphs(self) -> None:
        self.runner.clear()
        self.has_static_gradients = False

    def _load(self, batch: Batch) -> Hashable:
        """Copy a batch to the static tensors of its shape; return the shape."""
        text = self._resident_text(batch)
        if isinstance(batch, PlannedBatch):
            soft_targets = batch.split.soft_targets
            top = 0 if soft_targets is None else soft_targets.records["ids"].shape[1]
            shape = (batch.shape, batch.source_width, top)
        else:
            rows, width = batch.target_out.shape
            top = 0 if batch.soft_targets is None else batch.soft_targets.ids.shape[2]
            shape = ((rows, width), batch.source.shape[1], top)
        key = (*shape, text is not None)
        if key not in self.inputs:
            self.inputs[key] = StaticBatch(*shape, self.hardware.device, text)
        self.inputs[key].load(batch)
        return key

    def _resident_text(self, batch: Batch) -> ResidentSplit | None:
        """Return the text of a batch on the device; None if it is not there."""
        if (not isinstance(batch, PlannedBatch) or batch.split.masking is not None
                or batch.split.has_classes or resident_bytes(batch.split) > self.max_text_bytes):
            return None
        if self.text is None:
            self.text = ResidentSplit(batch.split, self.hardware.device)
        elif self.text.split is not batch.split:  # of another epoch
            if self.text.has_room(batch.split):
                self.text.replace(batch.split)
            else:
                self._discard_graphs()  # they read the old tensors
                self.inputs.clear()
                self.text = ResidentSplit(batch.split, self.hardware.device)
        return self.text

    def _update_once(self, shape: Hashable) -> None:
        """Update with one batch; the gradients are new tensors, so none are added."""
        self.model.zero_grad(set_to_none=True)
        self.loss.zero_()
        self._add_gradients(shape)
        self._apply_gradients(self.lr)

    def _apply_accumulated(self) -> None:
        self._apply_gradients(self.lr)
        gradients = [parameter.grad for parameter in self.parameters]
        torch._foreach_zero_([gradient for gradient in gradients if gradient is not None])

    def _add_gradients(self, shape: Hashable) -> None:
        """Add the gradients of the batch in the static tensors of ``shape``, and its loss."""
        self.inputs[shape].gather()
        loss: Any = self._static_loss_sum(self.inputs[shape]) / self.token_count
        loss.backward()
        self.loss += loss.detach()

    def _static_loss_sum(self, batch: StaticBatch) -> Tensor:
        """Sum the losses; the same as :meth:`Engine.loss_sum` without selecting rows."""
        recipe = self.recipe
        passes = 2 if recipe.rdrop else 1
        source = batch.source
        target_in, target_out = batch.ids
        with self.hardware.autocast():
            states = self._states(source.repeat(passes, 1), target_in.repeat(passes, 1))
            # rows of the passes next to each other: (B · T · passes, d)
            hidden = states.reshape(passes, -1, *states.shape[1:]).movedim(0, 2).flatten(0, 2)
            labels = target_out.flatten()
            row_weights = (labels != PAD).float()
            label_weights = None
            weight = recipe.distillation_weight
            if batch.soft_targets is not None and weight:
                soft_ids, soft_probabilities = batch.soft_targets
                labels = torch.cat([labels[:, None], soft_ids.flatten(0, 1)], 1)
                hard_weights = torch.full_like(row_weights[:, None], 1 - weight)
                soft_weights = weight * soft_probabilities.flatten(0, 1)
                label_weights = torch.cat([hard_weights, soft_weights], 1)
                label_weights = label_weights.repeat_interleave(passes, 0)
            terms = self.model.softmax_terms(hidden, labels.repeat_interleave(passes, 0))
            (states, matrix, bias, term_labels), = terms
            loss = cross_entropy(states, matrix, bias, term_labels, recipe.label_smoothing,
                                 rdrop_alpha=recipe.rdrop, label_weights=label_weights,
                                 row_weights=row_weights.repeat_interleave(passes),
                                 is_compiled=self.hardware.is_compiled,
                                 logit_limit=self.model.logit_limit) / passes
            return self._with_balance_loss(loss, row_weights.sum())

    def _finish_update(self) -> None:
        """Count the update; update the bases of SOAP when that is due."""
        self.n_updates += 1
        # the first update of SOAP only initializes the bases
        if self.n_updates > 1 and (self.n_updates - 1) % BASIS_UPDATE_INTERVAL == 0:
            for index, optimizer in enumerate(self.optimizers):
                if isinstance(optimizer, MatrixOptimizer):
                    self.runner.run(("bases", index), optimizer.update_bases)


def max_text_bytes(device: torch.device) -> float:
    """Return the bytes of text that are kept on a device; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    return MAX_SHARE * torch.cuda.get_device_properties(device).total_memory


def build_engine(model: Seq2SeqModel, recipe: Recipe, hardware: Hardware) -> Engine:
    """Build the engine for the shapes of batches on this hardware."""
    engine_class = CapturedEngine if hardware.has_fixed_shapes else Engine
    return engine_class(model, recipe, hardware)


def measure_precision(model: Seq2SeqModel, recipe: Recipe, hardware: Hardware,
                      batches: list[Batch]) -> bool:
    """Measure whether updates are faster with bf16 than without.

    The updates train copies of ``model``. Generators are as before.
    """
    random_state = get_random_state()
    seconds = {}
    for uses_bf16 in (False, True):
        engine = build_engine(copy.deepcopy(model), recipe, replace(hardware, uses_bf16=uses_bf16))
        for _ in range(TIMED_UPDATES):  # the first are compiled, captured and slow
            engine.update(batches, 0.0).item()
        start = time.perf_counter()
        for _ in range(TIMED_UPDATES):
            loss = engine.update(batches, 0.0)
        loss.item()
        seconds[uses_bf16] = time.perf_counter() - start
    set_random_state(random_state)
    return seconds[True] < seconds[False]
