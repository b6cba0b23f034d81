"""End of a training run: average, write and score the weights."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from scalesearch.tasks.language_model import perplexity
from scalesearch.terminal import format_count
from scalesearch.training import checkpoint
from scalesearch.training.effort import DECODING, EXPORT, SCORING
from scalesearch.training.loop import TrainingRun
from scalesearch.training.recipe import DECODE_WITH_MODEL
from scalesearch.training.scoring.evaluate import (
    DecodeFunction,
    evaluate_loss,
    resolve_decoding,
    score_split,
    scored_splits,
)
from scalesearch.training.scoring.measure import measure_latency
from scalesearch.training.updates.averaging import write_weights

# Exports the model of a folder to a format, and opens its decoder.
OpenArtifact = Callable[[Path, str], AbstractContextManager[DecodeFunction]]


def finish(run: TrainingRun, open_artifact: OpenArtifact | None = None) -> dict[str, Any]:
    """Average, write and score the weights; return the metrics of the result."""
    model = run.engine.model
    recipe = run.recipe
    weights = "the last"
    if recipe.average == "last":
        run.snapshots.add(model, run.budget_used.steps)
    if run.weight_average:
        model.load_state_dict(run.weight_average.averaged_weights())
        window = format_count(round(run.weight_average.effective_window), "update")
        weights = f"moving average over the last {window}"
    if run.snapshots.scores_by_step:
        model.load_state_dict(run.snapshots.average())
        steps = sorted(run.snapshots.scores_by_step)
        count = f"mean of the {recipe.average} {len(steps)}" if len(steps) > 1 else (
            f"the {recipe.average}")
        weights = f"{count} (after update{'s' * (len(steps) > 1)} {', '.join(map(str, steps))})"
    write_weights(run.directory / checkpoint.WEIGHTS_FILE, model.state_dict())
    decode: DecodeFunction | None = None
    with run.timer.measure_part(SCORING), ExitStack() as stack:
        if open_artifact is not None and recipe.decode_with != DECODE_WITH_MODEL:
            with run.timer.measure_part(EXPORT):
                decode = stack.enter_context(open_artifact(run.directory, recipe.decode_with))
        split_name, *further_splits = scored_splits(recipe, run.corpus)
        metrics = _score_one_split(run, split_name, decode)
        if split_name == "validation":
            validation_loss = metrics["loss"]
        else:
            validation_loss = evaluate_loss(run.engine, run.corpus.validation,
                                            run.stop_signal.raise_if_requested)
        metrics |= {"split": split_name, **run.validation_losses(validation_loss),
                    "validation_perplexity": perplexity(validation_loss)}
        for further_split in further_splits:
            metrics[further_split] = _score_one_split(run, further_split, decode)
        if recipe.measure in ("latency", "both"):
            split = getattr(run.corpus, metrics["split"])
            metrics |= measure_latency(model, split, run.engine.hardware,
                                       run.stop_signal.raise_if_requested)
    return {**metrics, "weights": weights, "task": run.task.name,
            "synthetic": run.corpus.is_synthetic}


def _score_one_split(
        run: TrainingRun, split_name: str, decode: DecodeFunction | None) -> dict[str, Any]:
    def report_progress(done: int, total: int) -> None:
        run.report({"type": "decode", "done": done, "total": total})

    decoding = resolve_decoding(run.recipe, run.corpus.max_length_a)
    return score_split(run.engine, run.corpus, split_name, decoding,
                       run.stop_signal.raise_if_requested, report_progress, decode,
                       run.timer.measure_part(DECODING))
