"""Training loop: updates and validations until the budget is used; resumable."""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, astuple
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scalesearch.data import BatchStream, Corpus, remask, retokenize
from scalesearch.signals import StopRequest
from scalesearch.tasks import TASKS
from scalesearch.training import checkpoint
from scalesearch.training.effort import UPDATES, VALIDATION, TrainingTimer
from scalesearch.training.hardware import TrainingFailedError
from scalesearch.training.recipe import Recipe
from scalesearch.training.scoring.evaluate import (
    evaluate_loss,
    resolve_decoding,
    tokens_per_character,
    translate,
)
from scalesearch.training.updates.averaging import ExponentialMovingAverage, WeightSnapshots
from scalesearch.training.updates.captured import CapturedEngine, choose_buckets
from scalesearch.training.updates.engine import Engine
from scalesearch.training.updates.schedule import BudgetUsed, IntervalTrigger, LearningRateSchedule

ReportFunction = Callable[[dict[str, Any]], None]
# updates between readings of the loss on a GPU; each reading waits for the GPU
GPU_LOSS_INTERVAL = 20
REPORT_SECONDS = 0.5
ROLLBACK_LR_FACTOR = 0.5  # on the learning rate, after a divergence


class DivergedError(TrainingFailedError):
    """Error: the loss is not finite."""


class TrainingRun:
    """State of a training run and its loop.

    Attributes:
        budget_used: counts updates only, without validation, decoding and saving.
        curve: one entry per validation.
        lr, loss: of the last update.
        lr_factor: factor on the learning rate, less than 1 after a rollback.
        loss_since_validation: summed loss and number of tokens since the last validation.
        stop_reason: ``budget`` or ``patience``; empty while training continues.
    """

    def __init__(self, engine: Engine, corpus: Corpus, recipe: Recipe, directory: Path, seed: int,
                 stop_signal: StopRequest, report: ReportFunction, timer: TrainingTimer) -> None:
        self.engine = engine
        self.corpus = corpus
        self.recipe = recipe
        self.directory = directory
        self.stop_signal = stop_signal
        self.report = report
        self.timer = timer
        self.task = TASKS[corpus.spec.task]
        self.seed = seed
        self.batch_stream = self._build_batch_stream(engine.hardware.has_fixed_shapes)
        self.budget_used = BudgetUsed()
        self.schedule = LearningRateSchedule(recipe)
        self.snapshots = WeightSnapshots(directory, recipe.average_count)
        self.weight_average: ExponentialMovingAverage | None = None
        if recipe.average == "ema":
            window = recipe.average_every * recipe.average_count
            if recipe.average_every < 1 <= window:  # shares that add up to more than all updates
                window = math.inf
            self.weight_average = ExponentialMovingAverage(engine.model, window)
        self.validation_interval = IntervalTrigger(recipe.validate_every)
        self.average_interval = IntervalTrigger(recipe.average_every)
        self.curve: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.stop_reason = ""
        self.loss_since_validation = [0.0, 0]
        self._unread_losses: list[tuple[Tensor, int]] = []
        self.lr = 0.0
        self.loss = 0.0
        self.lr_factor = 1.0
        self.identity: dict[str, Any] = {}
        self._saved_at = time.monotonic()
        self._reported_at = self._saved_at

    def _build_batch_stream(self, has_buckets: bool) -> BatchStream:
        dropout = self.recipe.subword_dropout
        make_epoch_split = partial(retokenize, self.corpus, dropout, self.seed) if dropout else None
        if self.corpus.train.masking is not None:
            make_epoch_split = partial(remask, self.corpus, self.recipe.mask_ratio, self.seed)
        buckets = choose_buckets(self.corpus, self.recipe) if has_buckets else None
        return BatchStream(self.corpus.train, self.recipe.max_tokens, self.seed, make_epoch_split,
                           buckets)

    # -- the loop

    def train(self, until_share: float = 1.0) -> bool:
        """Train until the budget, its share ``until_share`` or the patience is used.

        Returns:
            Whether training is over; if not, it was saved and can be resumed.

        Raises:
            TrainingFailedError: the loss is not finite, or memory ran out.
            SignalInterrupt: a signal arrived; see :meth:`StopRequest.raise_if_requested`.
        """
        if not self.budget_used.steps:
            self.save()  # for a rollback before the first checkpoint
        while True:
            try:
                self._evaluate_if_due()
                if self.budget_share >= 1 or self.stop_reason:
                    break
                if self.budget_share >= until_share:
                    self.save()
                    return False
                self.stop_signal.raise_if_requested()
                try:
                    with self.timer.measure_part(UPDATES):
                        self._update()
                finally:
                    self._update_budget_times()
            except DivergedError as error:
                # Go back to the last checkpoint, once, with half the learning rate. The time used
                # still counts; updates and tokens are those of the checkpoint.
                state = checkpoint.load_state(self.directory) if self.lr_factor == 1 else None
                if state is None:
                    raise TrainingFailedError(f"{error} (again, after a rollback to a checkpoint "
                                              "with half the learning rate)") from error
                self._unread_losses.clear()
                self._restore_state(state)
                self.lr_factor = ROLLBACK_LR_FACTOR
                self.notes.append(f"{error}; rolled back to update {self.budget_used.steps} with "
                                  f"{ROLLBACK_LR_FACTOR:g} of the learning rate")
                self.save()
            if time.monotonic() - self._reported_at >= REPORT_SECONDS:
                self._reported_at = time.monotonic()
                used = self.budget_used
                share = self.budget_share
                left = used.seconds * (1 - share) / share if share else None
                self.report({"type": "update", **self._position(), "lr": self.lr,
                             "loss": self.loss, "eta_seconds": left,
                             "tokens_per_second": used.tokens / max(used.seconds, 1e-9),
                             "tokens_per_cpu_second": used.tokens / max(used.cpu_seconds, 1e-9)})
        self.stop_reason = self.stop_reason or "budget"
        return True

    def measure_validation_loss(self) -> dict[str, Any]:
        """Return the position of training and the validation loss.

        Later training does not depend on the call.
        """
        last = self.curve[-1] if self.curve else {"step": -1}
        if last["step"] == self.budget_used.steps:
            validation_loss = last["validation_loss"]
        else:
            with self.timer.measure_part(VALIDATION), self._evaluation_weights():
                validation_loss = evaluate_loss(
                    self.engine, self.corpus.validation, self.stop_signal.raise_if_requested)
        return {**self._position(), **self.validation_losses(validation_loss)}

    def _evaluation_weights(self) -> AbstractContextManager[None]:
        """Context in which the model has the weights that are evaluated."""
        return self.weight_average.applied() if self.weight_average else nullcontext()

    def validation_losses(self, validation_loss: float) -> dict[str, float]:
        """Return the validation loss per token and per character."""
        return {"validation_loss": validation_loss,
                "validation_loss_per_char": validation_loss * self._validation_tokens_per_character}

    @cached_property
    def _validation_tokens_per_character(self) -> float:
        return tokens_per_character(self.corpus, "validation")

    @property
    def budget_share(self) -> float:
        """Used share of the budget."""
        return self.budget_used.budget_share(self.recipe, len(self.corpus.train))

    def _update_budget_times(self) -> None:
        """Copy the time of the updates to the used budget."""
        updates = self.timer.efforts()[UPDATES]
        self.budget_used.seconds = updates.seconds
        self.budget_used.cpu_seconds = updates.cpu_seconds

    def _update(self) -> None:
        batches = self.batch_stream.take(self.recipe.accumulate)
        tokens = sum(batch.tokens for batch in batches)
        batch_splits = self.engine.batch_splits
        self.lr = self.lr_factor * self.schedule.learning_rate(
            self.budget_used.steps, self.budget_share)
        self._unread_losses.append((self.engine.update(batches, self.lr), tokens))
        if self.weight_average:
            self.weight_average.update()
        self.budget_used.steps += 1
        self.budget_used.tokens += tokens
        self.budget_used.pairs += sum(map(len, batches))
        self.notes += self.engine.notes
        self.engine.notes.clear()
        if self.engine.batch_splits != batch_splits:
            self.notes.append(f"update {self.budget_used.steps}: out of memory; from now on, "
                              f"batches are split into {self.engine.batch_splits} pieces; tokens "
                              "per update are unchanged")
        # Waiting for a GPU belongs to the time of the updates. Read the losses here, not during
        # validation.
        validates = self.validation_interval.is_due(self.budget_used.steps, self.budget_share)
        is_cpu = self.engine.hardware.device.type == "cpu"
        if is_cpu or validates or len(self._unread_losses) >= GPU_LOSS_INTERVAL:
            self._read_losses()

    def _read_losses(self) -> None:
        """Read the losses that are still on the device.

        Raises:
            DivergedError: a loss is not finite.
        """
        if not self._unread_losses:
            return
        values = torch.stack([loss for loss, _ in self._unread_losses]).tolist()
        first = self.budget_used.steps - len(values) + 1
        for step, (value, (_, tokens)) in enumerate(zip(values, self._unread_losses), first):
            if not math.isfinite(value):
                raise DivergedError(f"the loss is {value} at update {step}, learning rate "
                                    f"{self.lr:.3g}: it diverged; a lower lr, a longer warmup or "
                                    "clip_norm may help")
            self.loss_since_validation[0] += value * tokens
            self.loss_since_validation[1] += tokens
        self.loss = values[-1]
        self._unread_losses.clear()

    # -- validation

    def _evaluate_if_due(self) -> None:
        """Validate, keep weights and save if due; a second call changes nothing."""
        step = self.budget_used.steps
        share = self.budget_share
        if self.average_interval.is_due(step, share):
            if self.recipe.average == "last":
                every = self.recipe.average_every
                interval = every if every < 1 else every * share / step  # as a share of the budget
                # whether these weights can be among the last few at the end of the budget
                if self.recipe.patience is not None or (
                        1 - share <= interval * self.recipe.average_count):
                    self.snapshots.add(self.engine.model, step)
            self.average_interval.mark_passed(step, share)
        last_step = self.curve[-1]["step"] if self.curve else 0
        is_due = share >= 1 or self.stop_reason or self.validation_interval.is_due(step, share)
        if step > last_step and is_due:
            with self.timer.measure_part(VALIDATION):
                self._validate()
            self.validation_interval.mark_passed(step, share)
        if time.monotonic() - self._saved_at > 60 * self.recipe.checkpoint_minutes and step:
            self.save()

    def _validate(self) -> None:
        self._read_losses()
        with self._evaluation_weights():
            validation_loss = evaluate_loss(self.engine, self.corpus.validation,
                                            self.stop_signal.raise_if_requested)
            score = None
            if self.recipe.validate_metric:
                split = self.corpus.validation
                assert self.task.score is not None, "check_compatible refuses other tasks"
                greedy = resolve_decoding(self.recipe, self.corpus.max_length_a, beam=1)
                translations = translate(self.engine.model, split, self.corpus.tokenizer,
                                         self.engine.hardware, greedy,
                                         self.stop_signal.raise_if_requested,
                                         notes=self.engine.notes)
                self.engine.model.train()
                metrics = self.task.score([best.text for best, *_ in translations], split.texts,
                                          self.corpus.spec)
                score = float(metrics[self.task.main_metric])
        loss_sum, tokens = self.loss_since_validation
        train_loss = loss_sum / tokens if tokens else None
        if not math.isfinite(validation_loss):
            raise DivergedError(f"the validation loss is {validation_loss} after update "
                                f"{self.budget_used.steps}: it diverged")
        scores = {"bleu": None} | ({} if score is None else {self.task.main_metric: score})
        self.curve.append({**self._position(), "lr": self.lr, "train_loss": train_loss,
                           **self.validation_losses(validation_loss), **scores})
        self.loss_since_validation = [0.0, 0]
        # If validations have the same metric, the loss decides: BLEU is 0 for many early updates.
        ranks = [(validation["validation_loss"],) if self.recipe.monitor == "loss" else
                 (-float(validation.get(self.task.main_metric) or 0), validation["validation_loss"])
                 for validation in self.curve]
        if self.recipe.average == "best":
            self.snapshots.add(self.engine.model, self.budget_used.steps, ranks[-1])
        n_without_improvement = len(ranks) - 1 - ranks.index(min(ranks))
        if self.recipe.patience is not None and n_without_improvement >= self.recipe.patience:
            self.stop_reason = "patience"
        self.report({"type": "validation", **self.curve[-1]})

    def _position(self) -> dict[str, Any]:
        used = self.budget_used
        return {"step": used.steps, "tokens": used.tokens, "cpu_seconds": used.cpu_seconds,
                "seconds": used.seconds, "share": self.budget_share}

    # -- saving and resuming

    def save(self) -> None:
        """Write a checkpoint to resume from."""
        self._read_losses()
        checkpoint.save_state(self.directory, self.state())
        self.snapshots.delete_unused()
        self._saved_at = time.monotonic()

    def state(self) -> dict[str, Any]:
        """Return the state that later training depends on, as tensors and plain values."""
        return {**self.engine.state(), "spent": asdict(self.budget_used),
                "warm_end": self.schedule.warmup_end_share,
                "place": [self.batch_stream.epoch, self.batch_stream.index],
                "has_buckets": self.batch_stream.buckets is not None, "curve": self.curve,
                "notes": self.notes,
                "marks": [self.validation_interval.n_passed, self.average_interval.n_passed],
                "window": self.loss_since_validation,
                "progress": [self.stop_reason], "last": [self.lr, self.loss],
                "scale": self.lr_factor, "identity": self.identity,
                "mean": self.weight_average.state() if self.weight_average else None,
                "efforts": {part: astuple(effort) for part, effort in self.timer.efforts().items()},
                "phases": self.timer.phases,
                "snapshots": [{"step": step, "score": score}
                              for step, score in self.snapshots.scores_by_step.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of :meth:`state`, in another process."""
        self.timer.restore(state["efforts"], state.get("phases", {}))
        self._restore_state(state)

    def _restore_state(self, state: dict[str, Any]) -> None:
        """Restore everything except the time used, which continues."""
        self.engine.restore(state)
        self.budget_used = BudgetUsed(**state["spent"])
        if self.weight_average:
            self.weight_average.restore(state["mean"])
        self._update_budget_times()
        self.schedule.warmup_end_share = state["warm_end"]
        self.curve = state["curve"]
        self.notes = state["notes"]
        has_buckets = state["has_buckets"]
        if has_buckets != (self.batch_stream.buckets is not None):
            self.batch_stream = self._build_batch_stream(has_buckets)
            if isinstance(self.engine, CapturedEngine):
                self.engine.use_exact_shapes("the run was begun on a device without a GPU")
        self.batch_stream.seek(*state["place"])
        self.validation_interval.n_passed, self.average_interval.n_passed = state["marks"]
        self.loss_since_validation = state["window"]
        self.lr_factor = state["scale"]
        *_, self.stop_reason = state["progress"]  # earlier versions stored counts before it
        self.lr, self.loss = state["last"]
        self.snapshots.scores_by_step = {
            item["step"]: tuple(item["score"]) if isinstance(item["score"], list | tuple)
            else (item["score"],) for item in state["snapshots"]}  # earlier versions: numbers
        self.snapshots.delete_unused()
