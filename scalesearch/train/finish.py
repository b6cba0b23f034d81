"""End of a training: averages, writes and scores the weights."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from scalesearch.train import checkpoint
from scalesearch.train.effort import SCORING
from scalesearch.train.loop import Run
from scalesearch.train.recipe import MODEL
from scalesearch.train.scoring.evaluate import Decode, Search, loss_per_token, perplexity, score_split
from scalesearch.train.scoring.measure import latency
from scalesearch.train.updates.averaging import write_weights

Artefacts = Callable[[Path, str], AbstractContextManager[Decode]]  # of a finished model's folder, by format


def finish(run: Run, artefacts: Artefacts | None = None) -> dict[str, Any]:
    """Averages, writes and scores the weights of ``run``; returns the metrics of the result."""
    model, recipe, weights = run.engine.model, run.recipe, "the last"
    if recipe.average == "last":
        run.snapshots.add(model, run.spent.steps)
    if run.mean:
        model.load_state_dict(run.mean.named())
        weights = f"moving average over the last {run.mean.updates:.0f} updates"
    if run.snapshots.kept:
        model.load_state_dict(run.snapshots.mean())
        steps = sorted(run.snapshots.kept)
        weights = f"mean of the {recipe.average} {len(steps)} (after updates {', '.join(map(str, steps))})"
    write_weights(run.directory / checkpoint.WEIGHTS, model.state_dict())
    decoding = nullcontext() if artefacts is None or recipe.decode_with == MODEL else artefacts(
        run.directory, recipe.decode_with)
    with run.meter.part(SCORING), decoding as decode:
        metrics = _scores(run, decode)
        if recipe.measure in ("latency", "both"):
            split = getattr(run.corpus, metrics["split"])
            metrics |= latency(model, split, run.engine.hardware, run.stop.check)
    return {**metrics, "weights": weights, "task": run.task.name, "synthetic": run.corpus.synthetic}


def _scores(run: Run, decode: Decode | None) -> dict[str, Any]:
    """Scores on the split for selection, and under ``test`` those to report."""
    both = run.recipe.score_on == "both"
    chosen = "valid" if both else run.recipe.score_on
    scores = _scores_on(run, chosen, decode)
    known = chosen == "valid"
    valid_loss = scores["loss"] if known else loss_per_token(run.engine, run.corpus.valid, run.stop.check)
    scores |= {"split": chosen, **run.losses(valid_loss), "valid_perplexity": perplexity(valid_loss)}
    return scores | ({"test": _scores_on(run, "test", decode)} if both else {})


def _scores_on(run: Run, name: str, decode: Decode | None) -> dict[str, Any]:
    search = Search(run.recipe.beam, run.recipe.length_penalty)
    return score_split(run.engine, run.corpus, name, search, run.stop.check,
                       lambda done, of: run.report({"kind": "decode", "done": done, "of": of}), decode)
