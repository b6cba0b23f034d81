"""Training loop: updates and validations until the budget is used, resumable anywhere."""

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

from scalesearch.data import BatchStream, Corpus, retokenize
from scalesearch.signals import StopRequest
from scalesearch.tasks import TASKS
from scalesearch.train import checkpoint
from scalesearch.train.effort import UPDATES, VALIDATION, Effort, TrainingTimer
from scalesearch.train.hardware import TrainingFailedError
from scalesearch.train.recipe import Recipe
from scalesearch.train.scoring.evaluate import DecodingOptions, evaluate_loss, tokens_per_character, translate
from scalesearch.train.updates.averaging import ExponentialMovingAverage, WeightSnapshots
from scalesearch.train.updates.engine import Engine
from scalesearch.train.updates.schedule import BudgetUsed, IntervalTrigger, LearningRateSchedule

ReportFunction = Callable[[dict[str, Any]], None]
GPU_LOSS_INTERVAL = 20  # updates between readings of the loss on a GPU: each reading waits for it
REPORT_SECONDS = 0.5
ROLLBACK_LR_FACTOR = 0.5  # of the learning rate after a divergence


class DivergedError(TrainingFailedError):
    """Error: the loss is not finite."""


class TrainingRun:
    """State of a training and its loop; ``spent`` counts updates only."""

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
        anew = partial(retokenize, corpus, recipe.subword_dropout,
                       seed) if recipe.subword_dropout else None
        self.batch_stream = BatchStream(corpus.train, recipe.max_tokens, seed, anew)
        self.budget_used = BudgetUsed()
        self.schedule = LearningRateSchedule(recipe)
        self.snapshots = WeightSnapshots(directory, recipe.average_count)
        window = recipe.average_every * recipe.average_count
        # shares that are more than all updates, no number of updates
        if recipe.average_every < 1 <= window:
            window = math.inf
        self.weight_average = ExponentialMovingAverage(
            engine.model, window) if recipe.average == "ema" else None
        self.validation_interval = IntervalTrigger(recipe.validate_every)
        self.average_interval = IntervalTrigger(recipe.average_every)
        self.curve: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.best_score = math.inf
        self.validations_without_improvement = 0
        self.stop_reason = ""
        self.loss_since_validation = [0.0, 0]  # summed loss and tokens since the last validation
        self._unread_losses: list[tuple[Tensor, int]] = []
        self.lr = self.loss = 0.0  # of the last update
        self.lr_factor = 1.0  # of the learning rate; less after a rollback
        self.identity: dict[str, Any] = {}
        self._saved_at = self._reported_at = time.monotonic()

    # -- the loop

    def train(self, until_share: float = 1.0) -> bool:
        """Trains until the budget, the patience or the share ``until_share`` of the budget is used.

        Returns:
            Whether training is over; if not, it was saved, to be resumed.

        Raises:
            TrainingFailed: the loss is not finite, or memory ran out.
            Interrupted: by a signal; see :meth:`StopRequest.check`.
        """
        if not self.budget_used.steps:
            self.save()  # for a rollback before the first save
        while True:
            try:
                self._evaluate_if_due()
                if self.budget_share >= 1 or self.stop_reason:
                    break
                if self.budget_share >= until_share:
                    self.save()
                    return False
                self.stop_signal.raise_if_requested()
                self._timed_update()
            except DivergedError as error:
                self._roll_back(error)
            if time.monotonic() - self._reported_at >= REPORT_SECONDS:
                self._report_update()
        self.stop_reason = self.stop_reason or "budget"
        return True

    def measure_validation_loss(self) -> dict[str, Any]:
        """Position of training and ``validation_loss`` there; later training does not depend on the call."""
        last = self.curve[-1] if self.curve else {"step": -1}
        known = last["step"] == self.budget_used.steps
        if not known:
            with self.timer.measure_part(VALIDATION), self._evaluation_weights():
                loss = evaluate_loss(self.engine, self.corpus.validation,
                                     self.stop_signal.raise_if_requested)
        return {**self._position(), **self.validation_losses(last["validation_loss"] if known else loss)}

    def _evaluation_weights(self) -> AbstractContextManager[None]:
        """Context in which the model has the weights that it is judged by."""
        return self.weight_average.applied() if self.weight_average else nullcontext()

    def validation_losses(self, validation_loss: float) -> dict[str, float]:
        """The validation loss, a token and a character."""
        return {"validation_loss": validation_loss,
                "validation_loss_per_char": validation_loss * self._validation_tokens_per_character}

    @cached_property
    def _validation_tokens_per_character(self) -> float:
        return tokens_per_character(self.corpus, "validation")

    def _roll_back(self, error: DivergedError) -> None:
        """Restores the last save, to go on at half the learning rate.

        The time used still counts, updates and tokens are counted anew.

        Raises:
            TrainingFailed: there was a rollback before.
        """
        state = checkpoint.load_state(self.directory) if self.lr_factor == 1 else None
        if state is None:
            raise TrainingFailedError(f"{error} (again, after going back to a save and halving the "
                                      "rate)")
        self._unread_losses.clear()
        self._restore_state(state)
        self.lr_factor = ROLLBACK_LR_FACTOR
        self.notes.append(f"{error}; went back to update {self.budget_used.steps} and on with "
                          f"{ROLLBACK_LR_FACTOR:g} of the rate")
        self.save()

    @property
    def budget_share(self) -> float:
        """Used share of the budget."""
        return self.budget_used.budget_share(self.recipe, len(self.corpus.train))

    def _timed_update(self) -> None:
        try:
            with self.timer.measure_part(UPDATES):
                self._update()
        finally:
            self.timer.add_effort(UPDATES, Effort(cpu_seconds=self.engine.follower_seconds()))
            self._update_budget_times()

    def _update_budget_times(self) -> None:
        """Has the budget know the time of the updates."""
        updates = self.timer.efforts()[UPDATES]
        self.budget_used.seconds = updates.seconds
        self.budget_used.cpu_seconds = updates.cpu_seconds

    def _update(self) -> None:
        batches = self.batch_stream.take(self.recipe.accumulate)
        tokens = sum(batch.tokens for batch in batches)
        parts = self.engine.batch_splits
        self.lr = self.lr_factor * self.schedule.learning_rate(
            self.budget_used.steps, self.budget_share)
        self._unread_losses.append((self.engine.update(batches, self.lr), tokens))
        if self.weight_average:
            self.weight_average.update()
        self.budget_used.steps += 1
        self.budget_used.tokens += tokens
        self.budget_used.pairs += sum(map(len, batches))
        if self.engine.batch_splits != parts:
            self.notes.append(f"update {self.budget_used.steps}: out of memory; batches cut into "
                              f"{self.engine.batch_splits} pieces from there on, tokens an update "
                              "unchanged")
        # Waiting for a GPU belongs to the time of the updates that it waits for: here, not when
        # validating.
        validates = self.validation_interval.is_due(self.budget_used.steps, self.budget_share)
        if self.engine.hardware.device.type == "cpu" or validates or len(
                self._unread_losses) >= GPU_LOSS_INTERVAL:
            self._read_losses()

    def _read_losses(self) -> None:
        """Reads the losses that are still on the device.

        Raises:
            Diverged: one of them is not a finite number.
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
        """Validates, keeps weights and saves where that is due; a second call changes nothing."""
        step = self.budget_used.steps
        share = self.budget_share
        if self.average_interval.is_due(step, share):
            if self.recipe.average == "last" and self._is_in_final_average(step, share):
                self.snapshots.add(self.engine.model, step)
            self.average_interval.mark_passed(step, share)
        last = self.curve[-1]["step"] if self.curve else 0
        if step > last and (share >= 1 or self.stop_reason
                            or self.validation_interval.is_due(step, share)):
            with self.timer.measure_part(VALIDATION):
                self._validate()
            self.validation_interval.mark_passed(step, share)
        if time.monotonic() - self._saved_at > 60 * self.recipe.checkpoint_minutes and step:
            self.save()

    def _is_in_final_average(self, step: int, share: float) -> bool:
        """Whether the current weights can be among the last few when the budget ends."""
        every = self.recipe.average_every
        apart = every if every < 1 else every * share / step
        return self.recipe.patience is not None or 1 - share <= apart * self.recipe.average_count

    def _validate(self) -> None:
        self._read_losses()
        with self._evaluation_weights():
            validation_loss = evaluate_loss(self.engine, self.corpus.validation,
                                       self.stop_signal.raise_if_requested)
            score = self._validation_score() if self.recipe.validate_metric else None
        train_loss = self.loss_since_validation[0] / self.loss_since_validation[
            1] if self.loss_since_validation[1] else None
        if not math.isfinite(validation_loss):
            raise DivergedError(f"the validation loss is {validation_loss} after update "
                                f"{self.budget_used.steps}: it diverged")
        scored = {"bleu": None} | ({} if score is None else {self.task.main_metric: score})
        self.curve.append({**self._position(), "lr": self.lr, "train_loss": train_loss,
                           **self.validation_losses(validation_loss), **scored})
        self.loss_since_validation = [0.0, 0]
        self._track_best(validation_loss if self.recipe.monitor == "loss" else -float(score or 0))
        self.report({"type": "validation", **self.curve[-1]})

    def _track_best(self, score: float) -> None:
        """Keeps the best weights and counts validations without improvement."""
        if self.recipe.average == "best":
            self.snapshots.add(self.engine.model, self.budget_used.steps, score)
        self.validations_without_improvement = (
            0 if score < self.best_score else self.validations_without_improvement + 1)
        self.best_score = min(self.best_score, score)
        if self.recipe.patience is not None and self.validations_without_improvement >= self.recipe.patience:
            self.stop_reason = "patience"

    def _validation_score(self) -> float:
        """Main metric of the task on valid; higher is better for every task that generates."""
        split = self.corpus.validation
        assert self.task.score is not None, "a recipe that validates by decoding is refused with other tasks"
        found = translate(self.engine.model, split, self.corpus.tokenizer, self.engine.hardware,
                          DecodingOptions(1), self.stop_signal.raise_if_requested)
        self.engine.model.train()
        return float(self.task.score([best[0] for best, *_ in found], split.texts,
                                     self.corpus.spec)[self.task.main_metric])

    def _position(self) -> dict[str, Any]:
        spent = self.budget_used
        return {"step": spent.steps, "tokens": spent.tokens, "cpu_seconds": spent.cpu_seconds,
                "seconds": spent.seconds, "share": self.budget_share}

    def _report_update(self) -> None:
        self._reported_at = time.monotonic()
        spent = self.budget_used
        share = self.budget_share
        self.report({"type": "update", **self._position(), "lr": self.lr, "loss": self.loss,
                     "tokens_per_second": spent.tokens / max(spent.seconds, 1e-9),
                     "tokens_per_cpu_second": spent.tokens / max(spent.cpu_seconds, 1e-9),
                     "eta_seconds": spent.seconds * (1 - share) / share if share else None})

    # -- saving and resuming

    def save(self) -> None:
        """Writes a checkpoint to resume from."""
        self._read_losses()
        checkpoint.save_state(self.directory, self.state())
        self.snapshots.delete_unused()
        self._saved_at = time.monotonic()

    def state(self) -> dict[str, Any]:
        """State that the rest of the training depends on, as tensors and plain values."""
        return {**self.engine.state(), "spent": asdict(self.budget_used),
                "warm_end": self.schedule.warmup_end_share,
                "place": [self.batch_stream.epoch, self.batch_stream.index], "curve": self.curve,
                "notes": self.notes,
                "marks": [self.validation_interval.n_passed, self.average_interval.n_passed],
                "window": self.loss_since_validation,
                "progress": [self.best_score, self.validations_without_improvement,
                             self.stop_reason], "last": [self.lr, self.loss],
                "scale": self.lr_factor, "identity": self.identity,
                "mean": self.weight_average.state() if self.weight_average else None,
                "efforts": {part: astuple(effort) for part, effort in self.timer.efforts().items()},
                "snapshots": [{"step": step, "score": score}
                              for step, score in self.snapshots.scores_by_step.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores what :meth:`state` returned, in another process."""
        self.timer.restore(state["efforts"])
        self._restore_state(state)

    def _restore_state(self, state: dict[str, Any]) -> None:
        """Restores all but the time used, which counts on."""
        self.engine.restore(state)
        self.budget_used = BudgetUsed(**state["spent"])
        if self.weight_average:
            self.weight_average.restore(state["mean"])
        self._update_budget_times()
        self.schedule.warmup_end_share = state["warm_end"]
        self.curve = state["curve"]
        self.notes = state["notes"]
        self.batch_stream.seek(*state["place"])
        self.validation_interval.n_passed, self.average_interval.n_passed = state["marks"]
        self.loss_since_validation = state["window"]
        self.lr_factor = state["scale"]
        self.best_score, self.validations_without_improvement, self.stop_reason = state["progress"]
        self.lr, self.loss = state["last"]
        self.snapshots.scores_by_step = {item["step"]: item["score"] for item in state["snapshots"]}
        self.snapshots.delete_unused()
