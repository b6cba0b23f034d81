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

from scalesearch.data import Corpus, Feed, cut_anew
from scalesearch.signals import Stop
from scalesearch.tasks import TASKS
from scalesearch.train import checkpoint
from scalesearch.train.effort import UPDATES, VALIDATION, Effort, Meter
from scalesearch.train.hardware import TrainingFailed
from scalesearch.train.recipe import Recipe
from scalesearch.train.scoring.evaluate import Search, loss_per_token, tokens_per_character, translate
from scalesearch.train.updates.averaging import MovingAverage, Snapshots
from scalesearch.train.updates.engine import Engine
from scalesearch.train.updates.schedule import Interval, Schedule, Spent

Report = Callable[[dict[str, Any]], None]
GPU_LOSS_INTERVAL = 20  # updates between readings of the loss on a GPU: each reading waits for it
REPORT_SECONDS = 0.5
ROLLBACK_RATE = 0.5  # of the learning rate after a divergence


class Diverged(TrainingFailed):
    """Error: the loss is not finite."""


class Run:
    """State of a training and its loop; ``spent`` counts updates only."""

    def __init__(self, engine: Engine, corpus: Corpus, recipe: Recipe, directory: Path, seed: int, stop: Stop,
                 report: Report, meter: Meter) -> None:
        self.engine, self.corpus, self.recipe, self.directory = engine, corpus, recipe, directory
        self.stop, self.report, self.meter = stop, report, meter
        self.task = TASKS[corpus.spec.task]
        anew = partial(cut_anew, corpus, recipe.subword_dropout, seed) if recipe.subword_dropout else None
        self.feed = Feed(corpus.train, recipe.max_tokens, seed, anew)
        self.spent, self.schedule = Spent(), Schedule(recipe)
        self.snapshots = Snapshots(directory, recipe.average_count)
        window = recipe.average_every * recipe.average_count
        if recipe.average_every < 1 <= window:  # shares that are more than all updates, no number of updates
            window = math.inf
        self.mean = MovingAverage(engine.model, window) if recipe.average == "ema" else None
        self.validations, self.averages = Interval(recipe.validate_every), Interval(recipe.average_every)
        self.curve: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.best, self.stale, self.stopped = math.inf, 0, ""
        self.window = [0.0, 0]  # summed loss and tokens since the last validation
        self._pending: list[tuple[Tensor, int]] = []
        self.lr = self.loss = 0.0  # of the last update
        self.scale = 1.0  # of the learning rate; less after a rollback
        self.identity: dict[str, Any] = {}
        self._saved = self._reported = time.monotonic()

    # -- the loop

    def train(self, until: float = 1.0) -> bool:
        """Trains until the budget, the patience or the share ``until`` of the budget is used.

        Returns:
            Whether training is over; if not, it was saved, to be resumed.

        Raises:
            TrainingFailed: the loss is not finite, or memory ran out.
            Interrupted: by a signal; see :meth:`Stop.check`.
        """
        if not self.spent.steps:
            self.save()  # for a rollback before the first save
        while True:
            try:
                self._evaluate_if_due()
                if self.share >= 1 or self.stopped:
                    break
                if self.share >= until:
                    self.save()
                    return False
                self.stop.check()
                self._timed_update()
            except Diverged as error:
                self._roll_back(error)
            if time.monotonic() - self._reported >= REPORT_SECONDS:
                self._report_update()
        self.stopped = self.stopped or "budget"
        return True

    def measure(self) -> dict[str, Any]:
        """Position of training and ``valid_loss`` there; later training does not depend on the call."""
        last = self.curve[-1] if self.curve else {"step": -1}
        known = last["step"] == self.spent.steps
        if not known:
            with self.meter.part(VALIDATION), self._judged():
                loss = loss_per_token(self.engine, self.corpus.valid, self.stop.check)
        return {**self._position(), **self.losses(last["valid_loss"] if known else loss)}

    def _judged(self) -> AbstractContextManager[None]:
        """Context in which the model has the weights that it is judged by."""
        return self.mean.used() if self.mean else nullcontext()

    def losses(self, valid_loss: float) -> dict[str, float]:
        """The validation loss, a token and a character."""
        return {"valid_loss": valid_loss, "valid_loss_per_char": valid_loss * self._valid_rate}

    @cached_property
    def _valid_rate(self) -> float:
        return tokens_per_character(self.corpus, "valid")

    def _roll_back(self, error: Diverged) -> None:
        """Restores the last save, to go on at half the learning rate.

        The time used still counts, updates and tokens are counted anew.

        Raises:
            TrainingFailed: there was a rollback before.
        """
        state = checkpoint.load_state(self.directory) if self.scale == 1 else None
        if state is None:
            raise TrainingFailed(f"{error} (again, after going back to a save and halving the rate)")
        self._pending.clear()
        self._go_back(state)
        self.scale = ROLLBACK_RATE
        self.notes.append(f"{error}; went back to update {self.spent.steps} and on with {ROLLBACK_RATE:g} of the rate")
        self.save()

    @property
    def share(self) -> float:
        """Used share of the budget."""
        return self.spent.share(self.recipe, len(self.corpus.train))

    def _timed_update(self) -> None:
        try:
            with self.meter.part(UPDATES):
                self._update()
        finally:
            self.meter.add(UPDATES, Effort(cpu_seconds=self.engine.follower_seconds()))
            self._read_meter()

    def _read_meter(self) -> None:
        """Has the budget know the time of the updates."""
        updates = self.meter.efforts()[UPDATES]
        self.spent.seconds, self.spent.cpu_seconds = updates.seconds, updates.cpu_seconds

    def _update(self) -> None:
        batches = self.feed.take(self.recipe.accumulate)
        tokens, parts = sum(batch.tokens for batch in batches), self.engine.parts
        self.lr = self.scale * self.schedule.rate(self.spent.steps, self.share)
        self._pending.append((self.engine.update(batches, self.lr), tokens))
        if self.mean:
            self.mean.add()
        self.spent.steps += 1
        self.spent.tokens += tokens
        self.spent.pairs += sum(map(len, batches))
        if self.engine.parts != parts:
            self.notes.append(f"update {self.spent.steps}: out of memory; batches cut into {self.engine.parts} pieces "
                              "from there on, tokens an update unchanged")
        # Waiting for a GPU belongs to the time of the updates that it waits for: here, not when validating.
        validates = self.validations.due(self.spent.steps, self.share)
        if self.engine.hardware.device.type == "cpu" or validates or len(self._pending) >= GPU_LOSS_INTERVAL:
            self._read_losses()

    def _read_losses(self) -> None:
        """Reads the losses that are still on the device.

        Raises:
            Diverged: one of them is not a finite number.
        """
        if not self._pending:
            return
        values = torch.stack([loss for loss, _ in self._pending]).tolist()
        first = self.spent.steps - len(values) + 1
        for step, (value, (_, tokens)) in enumerate(zip(values, self._pending), first):
            if not math.isfinite(value):
                raise Diverged(f"the loss is {value} at update {step}, learning rate {self.lr:.3g}: it diverged; "
                               "a lower lr, a longer warmup or clip_norm may help")
            self.window[0] += value * tokens
            self.window[1] += tokens
        self.loss = values[-1]
        self._pending.clear()

    # -- validation

    def _evaluate_if_due(self) -> None:
        """Validates, keeps weights and saves where that is due; a second call changes nothing."""
        step, share = self.spent.steps, self.share
        if self.averages.due(step, share):
            if self.recipe.average == "last" and self._may_be_averaged(step, share):
                self.snapshots.add(self.engine.model, step)
            self.averages.tick(step, share)
        last = self.curve[-1]["step"] if self.curve else 0
        if step > last and (share >= 1 or self.stopped or self.validations.due(step, share)):
            with self.meter.part(VALIDATION):
                self._validate()
            self.validations.tick(step, share)
        if time.monotonic() - self._saved > 60 * self.recipe.checkpoint_minutes and step:
            self.save()

    def _may_be_averaged(self, step: int, share: float) -> bool:
        """Whether the current weights can be among the last few when the budget ends."""
        every = self.recipe.average_every
        apart = every if every < 1 else every * share / step
        return self.recipe.patience is not None or 1 - share <= apart * self.recipe.average_count

    def _validate(self) -> None:
        self._read_losses()
        with self._judged():
            valid_loss = loss_per_token(self.engine, self.corpus.valid, self.stop.check)
            score = self._valid_score() if self.recipe.validate_bleu else None
        train_loss = self.window[0] / self.window[1] if self.window[1] else None
        if not math.isfinite(valid_loss):
            raise Diverged(f"the validation loss is {valid_loss} after update {self.spent.steps}: it diverged")
        scored = {"bleu": None} | ({} if score is None else {self.task.main: score})
        self.curve.append({**self._position(), "lr": self.lr, "train_loss": train_loss, **self.losses(valid_loss),
                           **scored})
        self.window = [0.0, 0]
        self._track_best(valid_loss if self.recipe.watch == "loss" else -float(score or 0))
        self.report({"kind": "validation", **self.curve[-1]})

    def _track_best(self, score: float) -> None:
        """Keeps the best weights and counts validations without improvement."""
        if self.recipe.average == "best":
            self.snapshots.add(self.engine.model, self.spent.steps, score)
        self.stale = 0 if score < self.best else self.stale + 1
        self.best = min(self.best, score)
        if self.recipe.patience is not None and self.stale >= self.recipe.patience:
            self.stopped = "patience"

    def _valid_score(self) -> float:
        """Main metric of the task on valid; higher is better for every task that generates."""
        split = self.corpus.valid
        assert self.task.score is not None, "a recipe that validates by decoding is refused with other tasks"
        found = translate(self.engine.model, split, self.corpus.tokenizer, self.engine.hardware, Search(1),
                          self.stop.check)
        self.engine.model.train()
        return float(self.task.score([best[0] for best, *_ in found], split.texts, self.corpus.spec)[self.task.main])

    def _position(self) -> dict[str, Any]:
        spent = self.spent
        return {"step": spent.steps, "tokens": spent.tokens, "cpu_seconds": spent.cpu_seconds,
                "seconds": spent.seconds, "share": self.share}

    def _report_update(self) -> None:
        self._reported, spent, share = time.monotonic(), self.spent, self.share
        self.report({"kind": "update", **self._position(), "lr": self.lr, "loss": self.loss,
                     "tokens_per_second": spent.tokens / max(spent.seconds, 1e-9),
                     "tokens_per_cpu_second": spent.tokens / max(spent.cpu_seconds, 1e-9),
                     "eta_seconds": spent.seconds * (1 - share) / share if share else None})

    # -- saving and resuming

    def save(self) -> None:
        """Writes a checkpoint to resume from."""
        self._read_losses()
        checkpoint.save_state(self.directory, self.state())
        self.snapshots.sweep()
        self._saved = time.monotonic()

    def state(self) -> dict[str, Any]:
        """State that the rest of the training depends on, as tensors and plain values."""
        return {**self.engine.state(), "spent": asdict(self.spent), "warm_end": self.schedule.warm_end,
                "place": [self.feed.epoch, self.feed.index], "curve": self.curve, "notes": self.notes,
                "marks": [self.validations.done, self.averages.done], "window": self.window,
                "progress": [self.best, self.stale, self.stopped], "last": [self.lr, self.loss], "scale": self.scale,
                "identity": self.identity, "mean": self.mean.state() if self.mean else None,
                "efforts": {part: astuple(effort) for part, effort in self.meter.efforts().items()},
                "snapshots": [{"step": step, "score": score} for step, score in self.snapshots.kept.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores what :meth:`state` returned, in another process."""
        self.meter.restore(state["efforts"])
        self._go_back(state)

    def _go_back(self, state: dict[str, Any]) -> None:
        """Restores all but the time used, which counts on."""
        self.engine.restore(state)
        self.spent = Spent(**state["spent"])
        if self.mean:
            self.mean.restore(state["mean"])
        self._read_meter()
        self.schedule.warm_end, self.curve, self.notes = state["warm_end"], state["curve"], state["notes"]
        self.feed.seek(*state["place"])
        self.validations.done, self.averages.done = state["marks"]
        self.window, self.scale = state["window"], state["scale"]
        self.best, self.stale, self.stopped = state["progress"]
        self.lr, self.loss = state["last"]
        self.snapshots.kept = {item["step"]: item["score"] for item in state["snapshots"]}
        self.snapshots.sweep()
