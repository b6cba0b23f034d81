"""Masked language modeling (BERT): perplexity and accuracy at masked tokens."""

from __future__ import annotations

from typing import Any

from scalesearch.tasks.base import PER_TOKEN_METRICS, Metric, MetricOptions, Task, Texts
from scalesearch.tasks.language_model import perplexity

METRICS = {"perplexity": PER_TOKEN_METRICS["perplexity"],
           "masked_accuracy": Metric("max", 100.0, "Correct masked tokens (%)")}


def masked_perplexity(loss: float, tokens: int, texts: Texts,
                      options: MetricOptions) -> dict[str, Any]:
    """Return the perplexity per masked token, with a signature.

    Args:
        loss: mean over ``tokens`` masked tokens, in nats.
    """
    return {"perplexity": perplexity(loss),
            "perplexity_signature": f"window:{options.window}|masked tokens:{tokens}"}


def masked_accuracy(correct: int, tokens: int) -> dict[str, Any]:
    """Return the share of masked tokens whose most probable token is correct, in percent."""
    return {"masked_accuracy": 100 * correct / tokens}


TASK = Task("masked-language-model", "text", METRICS, ("window", "stride"),
            score_loss=masked_perplexity, score_correct=masked_accuracy,
            model_types=("encoder-only",))
