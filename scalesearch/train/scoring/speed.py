"""Speed of a candidate on this machine: what a whole training of it would take, from a few updates and batches.

Untrained models never end a sentence, so each batch is decoded to the length of its longest
reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from scalesearch.data import Batch, BatchStream, Corpus, Split, eval_batches
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.causality import check_causality
from scalesearch.nn.decode import greedy_search
from scalesearch.tasks import TASKS
from scalesearch.train.effort import OTHER, SCORING, UPDATES, VALIDATION, Effort, read_clocks
from scalesearch.train.hardware import Hardware
from scalesearch.train.recipe import Recipe
from scalesearch.train.scoring.evaluate import DECODE_BATCH_TOKENS, LOSS_BATCH_TOKENS, check_lengths
from scalesearch.train.updates.engine import Engine, build_initial_model

MIN_TIMED_UPDATES = 3
MAX_TIMED_UPDATES = 20  # updates that are timed
ReadClocks = Callable[[], Effort]


@dataclass(frozen=True)
class TrainingSpeed:
    """What each step of a training takes.

    Attributes:
        update_time: one update. tokens, pairs: target tokens and sentences of one, on average.
        validation_time: one look at the validation text. scoring: of the final weights. other:
            building, once a process.
    """

    update_time: Effort
    tokens_per_update: float
    pairs_per_update: float
    validation_time: Effort
    scoring_time: Effort
    other_time: Effort

    def predict_training_time(self, recipe: Recipe, pairs_per_epoch: int) -> dict[str, Effort]:
        """What a whole training takes, by part; ``patience`` may end it earlier."""
        update = self.update_time
        ends = {"steps": recipe.steps}
        for name, each in (("tokens", self.tokens_per_update),
                           ("epochs", self.pairs_per_update / pairs_per_epoch),
                           ("cpu_minutes", update.cpu_seconds / 60),
                           ("minutes", update.seconds / 60)):
            budget = getattr(recipe, name)
            ends[name] = budget / each if budget is not None and each > 0 else None
        updates = min((end for end in ends.values() if end is not None), default=0.0)
        every = recipe.validate_every if recipe.validate_every < 1 else recipe.validate_every / max(
            updates, 1)
        looks = max(1, math.ceil(1 / every - 1e-6)) if every else 1
        return {UPDATES: update * updates, VALIDATION: self.validation_time * looks,
                SCORING: self.scoring_time, OTHER: self.other_time}


def measure_speed(architecture: Any, corpus: Corpus, recipe: Recipe, max_seconds: float,
                  read_time: ReadClocks = read_clocks) -> TrainingSpeed:
    """Measures the speed of ``architecture``, in at most about so many ``max_seconds``; leaves nothing behind.

    Args:
        read_time: readings of the clocks.

    Raises:
        TrainingFailed, CausalityError: as a training would.
    """
    start = read_time()
    each = max_seconds / 3
    vocab = corpus.tokenizer.vocab_size
    hardware = Hardware.from_recipe(recipe)
    model = build_initial_model(architecture.block, vocab, recipe, 1)
    check_causality(model, vocab)
    check_lengths(model, corpus, recipe)
    engine = Engine(model.to(hardware.device).train(), recipe, hardware)
    feed = BatchStream(corpus.train, recipe.max_tokens, 1)
    other = read_time() - start
    float(engine.update(feed.take(recipe.accumulate), 0.0))  # the first is slower than all others
    start = read_time()
    updates = 0
    tokens = 0
    pairs = 0
    while updates < MIN_TIMED_UPDATES or (updates < MAX_TIMED_UPDATES
                                          and (read_time() - start).seconds < each):
        batches = feed.take(recipe.accumulate)
        float(engine.update(batches, 0.0))  # waits for a GPU
        updates = updates + 1
        tokens = tokens + sum(batch.tokens for batch in batches)
        pairs += sum(map(len, batches))
    update = (read_time() - start) * (1 / updates)
    model.eval()
    with torch.inference_mode():
        validation, scoring = _evaluation_times(engine, corpus, recipe, each, read_time)
    return TrainingSpeed(update, tokens / updates, pairs / updates, validation, scoring, other)


def _evaluation_times(engine: Engine, corpus: Corpus, recipe: Recipe, seconds: float,
                      now: ReadClocks) -> tuple[Effort, Effort]:
    """What validating and scoring take."""
    task = TASKS[corpus.spec.task]
    splits = ("validation", "test") if recipe.score_splits == "both" else (recipe.score_splits,)

    def decoded(split: Split, beam: int) -> Effort:
        def run(batch: Batch) -> None:
            source = engine.hardware.to_device(batch.source)
            longest = batch.target_out.shape[1]
            with engine.hardware.autocast():
                found = greedy_search(engine.model, source, longest) if beam == 1 else \
                    beam_search(engine.model, source, beam, recipe.length_penalty, longest)
            found.lengths.tolist()

        if task.score is None:
            return Effort()
        start = now()
        options = replace(corpus.spec, comet=None)  # a model of its own, whose time nobody knows
        task.score(list(split.texts.target), split.texts, options)
        return now() - start + _extrapolate_time(
            split, DECODE_BATCH_TOKENS * 2 // (beam + 1), run, seconds / len(splits), now)

    def lost(split: Split) -> Effort:
        return _extrapolate_time(split, LOSS_BATCH_TOKENS,
                                 lambda batch: float(engine.loss_sum(batch, 0.0)), seconds / 4, now)

    losses = {name: lost(getattr(corpus, name)) for name in {"validation", *splits}}
    scoring = sum((losses[name] + decoded(getattr(corpus, name), recipe.beam) for name in splits),
                  Effort())
    validation = losses["validation"] + (decoded(corpus.validation, 1) if recipe.validate_metric
                                    else Effort())
    return validation, scoring if "validation" in splits else scoring + losses["validation"]


def _extrapolate_time(split: Split, max_tokens: int, run: Callable[[Batch], object], seconds: float,
                      now: ReadClocks) -> Effort:
    """What ``run`` on all batches of ``split`` takes, from as many as fit into ``seconds``; one at least."""
    batches = eval_batches(split, max(1, max_tokens))
    start = now()
    done = 0
    took = Effort()
    places = np.array([batches[at].target_out.size for at in range(len(batches))])
    for at in np.random.default_rng(1).permutation(len(batches)):
        batch = batches[int(at)]
        start = now()
        run(batch)
        took = took + (now() - start)
        done = done + int(places[at])
        if took.seconds >= seconds:
            break
    return took * (float(places.sum()) / done)
