"""Language models on any text: scores and continuations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy

from scalesearch.blocks.core import EOS, PAD
from scalesearch.data import Split
from scalesearch.data.batching import eval_batches
from scalesearch.data.prepare import encode_windows
from scalesearch.errors import UserError
from scalesearch.nn.decode import sample_tokens
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.tasks import TASKS, Texts
from scalesearch.training.checkpoint import Checkpoint
from scalesearch.training.hardware import Hardware
from scalesearch.training.recipe import Recipe
from scalesearch.training.scoring.evaluate import LOSS_BATCH_TOKENS, evaluate_loss
from scalesearch.training.updates.engine import Engine

TASK = TASKS["language-model"]
EXPORTED_BATCH_TOKENS = 1024  # of exported models, which return the logits of all tokens


class Continuation(NamedTuple):
    """A prompt, as the tokenizer reads it, and its continuation."""

    prompt: str
    text: str


def check_language_model(trained: Checkpoint) -> None:
    """Raise UserError if the model was trained for another task."""
    if trained.task != TASK.name:
        raise UserError(f"{trained.folder}: trained for the task {trained.task}, not "
                        f"{TASK.name}", code="other-task")


def score_text(trained: Checkpoint, lines: Sequence[str],
               threads: int | None = None) -> dict[str, Any]:
    """Score a language model on lines of text: loss per token, perplexities and bits per byte.

    The windows of context are those of its data.

    Raises:
        UserError: the model has another task, or no text is given.
    """
    check_language_model(trained)
    spec = trained.spec
    kept = [line.lower() if trained.is_lowercase else line for line in lines if line.strip()]
    if not kept:
        raise UserError("no lines to score", code="nothing-to-score")
    assert spec.window is not None and spec.stride is not None, "a spec of text has both"
    split, counts = encode_windows(trained.tokenizer, kept, spec.window, spec.stride)
    if isinstance(trained.model, Seq2SeqModel):
        recipe = Recipe(steps=1, threads=threads, precision=trained.recipe.precision)
        hardware = Hardware.from_recipe(recipe)
        engine = Engine(trained.model.to(hardware.device), recipe, hardware)
        loss = evaluate_loss(engine, split)
        trained.model.eval()
    else:
        loss = _exported_model_loss(trained.model, split)
    tokens = sum(batch.tokens for batch in eval_batches(split, LOSS_BATCH_TOKENS))
    assert TASK.score_loss is not None
    return {"loss": loss, **TASK.score_loss(loss, tokens, Texts([], kept), spec),
            "unknown_tokens": counts["target_unknown"]}


@torch.inference_mode()
def _exported_model_loss(model: Any, split: Split) -> float:
    """Mean negative log-likelihood per target token of an exported model, in nats."""
    total = 0.0
    n_tokens = 0
    for batch in eval_batches(split, EXPORTED_BATCH_TOKENS):
        logits = model(torch.from_numpy(batch.source), torch.from_numpy(batch.target_in))
        labels = torch.from_numpy(batch.target_out)
        total += float(cross_entropy(logits.float().flatten(0, 1), labels.flatten(),
                                     ignore_index=PAD, reduction="sum"))
        n_tokens += batch.tokens
    return total / n_tokens


def continue_text(trained: Checkpoint, prompt: str = "", tokens: int = 100,
                  temperature: float = 1.0, top_k: int | None = None,
                  seed: int = 1) -> Continuation:
    """Continue a text with a language model; its lines are separated by newlines.

    Args:
        tokens: number of tokens to generate, with ends of lines.
        temperature, top_k, seed: see :func:`scalesearch.nn.decode.sample_tokens`.

    Raises:
        UserError: the model is not a language model.
    """
    check_language_model(trained)
    *lines, last = (prompt.lower() if trained.is_lowercase else prompt).split("\n")
    rows = trained.tokenizer.encode([line for line in lines if line.strip()])
    ids = [token for row in rows for token in [*row, EOS]] + trained.tokenizer.encode([last])[0]
    assert trained.spec.window is not None, "a spec of text has a window"
    fresh = sample_tokens(trained.model, ids, tokens, trained.spec.window, temperature, top_k, seed)
    read = _decode(trained, ids)
    return Continuation(read, _decode(trained, [*ids, *fresh])[len(read):])


def _decode(trained: Checkpoint, ids: Sequence[int]) -> str:
    """Text of a stream of tokens, in which EOS is the end of a line."""
    rows: list[list[int]] = [[]]
    for token in ids:
        if token == EOS:
            rows.append([])
        else:
            rows[-1].append(token)
    return "\n".join(trained.tokenizer.decode(rows))
