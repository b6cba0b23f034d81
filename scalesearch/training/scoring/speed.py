"""Training speed of a candidate, predicted from a few updates and batches.

Models that are not trained never end a sentence, so each batch is decoded to the length of its
longest reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from scalesearch.data import Batch, BatchStream, Corpus, Split, eval_batches
from scalesearch.data.batching import MAX_BUCKETS
from scalesearch.nn.causality import check_causality
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.tasks import TASKS
from scalesearch.training.effort import OTHER, SCORING, UPDATES, VALIDATION, Effort, read_clocks
from scalesearch.training.hardware import Hardware, estimate_update_flops
from scalesearch.training.recipe import Recipe
from scalesearch.training.scoring.evaluate import (
    DECODE_BATCH_TOKENS,
    LOSS_BATCH_TOKENS,
    DecodingOptions,
    check_lengths,
    open_search,
    scored_splits,
)
from scalesearch.training.updates.captured import build_engine, choose_buckets
from scalesearch.training.updates.engine import Engine, build_initial_model

MIN_TIMED_UPDATES = 3
MAX_TIMED_UPDATES = 20
ReadClocks = Callable[[], Effort]


@dataclass(frozen=True)
class TrainingSpeed:
    """Time of each step of a training run.

    Attributes:
        update_time: of one update.
        tokens_per_update, pairs_per_update: mean target tokens and sentences of one update.
        validation_time: of one validation.
        scoring_time: of scoring the final weights.
        other_time: of building the model, once per process.
    """

    update_time: Effort
    tokens_per_update: float
    pairs_per_update: float
    validation_time: Effort
    scoring_time: Effort
    other_time: Effort

    def predict_training_time(self, recipe: Recipe, pairs_per_epoch: int) -> dict[str, Effort]:
        """Predict the time of a training run by part; ``patience`` may end it earlier."""
        update = self.update_time
        per_update = {"tokens": self.tokens_per_update,
                      "epochs": self.pairs_per_update / pairs_per_epoch,
                      "cpu_minutes": update.cpu_seconds / 60, "minutes": update.seconds / 60}
        n_updates_by_budget = [float(recipe.steps)] if recipe.steps is not None else []
        for name, amount in per_update.items():
            budget = getattr(recipe, name)
            if budget is not None and amount > 0:
                n_updates_by_budget.append(budget / amount)
        n_updates = min(n_updates_by_budget, default=0.0)
        interval = (recipe.validate_every if recipe.validate_every < 1
                    else recipe.validate_every / max(n_updates, 1))
        n_validations = max(1, math.ceil(1 / interval - 1e-6)) if interval else 1
        return {UPDATES: update * n_updates, VALIDATION: self.validation_time * n_validations,
                SCORING: self.scoring_time, OTHER: self.other_time}


def measure_speed(architecture: ModelSpec, corpus: Corpus, recipe: Recipe, max_seconds: float,
                  read_time: ReadClocks = read_clocks) -> TrainingSpeed:
    """Measure the training speed in about ``max_seconds``; writes no files.

    Args:
        read_time: reads the clocks.

    Raises:
        TrainingFailedError, CausalityError: as in training.
    """
    start = read_time()
    seconds_per_part = max_seconds / 3
    vocab = corpus.tokenizer.vocab_size
    hardware = Hardware.from_recipe(
        recipe, estimate_update_flops(architecture.block, vocab, recipe))
    model = build_initial_model(architecture.block, vocab, recipe, 1)
    check_causality(model, corpus.tokenizer.common_vocab_size)
    check_lengths(model, corpus, recipe)
    engine = build_engine(model.to(hardware.device).train(), recipe, hardware)
    buckets = choose_buckets(corpus, recipe) if hardware.has_fixed_shapes else None
    batch_stream = BatchStream(corpus.train, recipe.max_tokens, 1, buckets=buckets)
    other = read_time() - start
    # the first updates of each shape are slower than the others
    for _ in range(3 * MAX_BUCKETS if hardware.has_fixed_shapes else 1):
        float(engine.update(batch_stream.take(recipe.accumulate), 0.0))
    start = read_time()
    n_updates = 0
    tokens = 0
    pairs = 0
    while n_updates < MIN_TIMED_UPDATES or (n_updates < MAX_TIMED_UPDATES
                                            and (read_time() - start).seconds < seconds_per_part):
        batches = batch_stream.take(recipe.accumulate)
        float(engine.update(batches, 0.0))  # waits for a GPU
        n_updates += 1
        tokens += sum(batch.tokens for batch in batches)
        pairs += sum(map(len, batches))
    update = (read_time() - start) * (1 / n_updates)
    model.eval()
    with torch.inference_mode():
        validation, scoring = _evaluation_times(engine, corpus, recipe, seconds_per_part, read_time)
    return TrainingSpeed(update, tokens / n_updates, pairs / n_updates, validation, scoring, other)


def _evaluation_times(engine: Engine, corpus: Corpus, recipe: Recipe, seconds: float,
                      read_time: ReadClocks) -> tuple[Effort, Effort]:
    """Measure the time of a validation and of scoring."""
    task = TASKS[corpus.spec.task]
    split_names = scored_splits(recipe, corpus)

    def measure_decoding(split: Split, beam: int) -> Effort:
        if task.score is None:
            return Effort()
        start = read_time()
        # the time of COMET, another model, is not predicted
        options = corpus.spec.replace(comet=None)
        task.score(list(split.texts.target), split.texts, options)
        metric_time = read_time() - start
        max_tokens = DECODE_BATCH_TOKENS * 2 // (beam + 1)
        decoding = DecodingOptions(beam, recipe.length_penalty)
        with open_search(engine.model, engine.hardware, decoding, []) as search:

            def run(batch: Batch) -> None:
                source = engine.hardware.to_device(batch.source)
                search(source, batch.target_out.shape[1]).lengths.tolist()

            return metric_time + _extrapolate_time(
                split, max_tokens, run, seconds / len(split_names), read_time)

    def measure_loss(split: Split) -> Effort:
        return _extrapolate_time(split, LOSS_BATCH_TOKENS,
                                 lambda batch: float(engine.loss_sum(batch, 0.0)), seconds / 4,
                                 read_time)

    losses = {name: measure_loss(getattr(corpus, name)) for name in {"validation", *split_names}}
    scoring = Effort()
    for name in split_names:
        scoring += losses[name] + measure_decoding(getattr(corpus, name), recipe.beam)
    if "validation" not in split_names:
        scoring += losses["validation"]
    validation = losses["validation"]
    if recipe.validate_metric:
        validation += measure_decoding(corpus.validation, 1)
    return validation, scoring


def _extrapolate_time(split: Split, max_tokens: int, run: Callable[[Batch], object], seconds: float,
                      read_time: ReadClocks) -> Effort:
    """Predict the time of ``run`` on all batches of ``split``.

    Random batches run for about ``seconds``, at least one of them.
    """
    batches = eval_batches(split, max(1, max_tokens))
    sizes = np.array([batches[index].target_out.size for index in range(len(batches))])
    n_tokens = 0
    total = Effort()
    for index in np.random.default_rng(1).permutation(len(batches)):
        batch = batches[int(index)]
        start = read_time()
        run(batch)
        total += read_time() - start
        n_tokens += int(sizes[index])
        if total.seconds >= seconds:
            break
    return total * (float(sizes.sum()) / n_tokens)
