"""Language modelling: perplexity per token and per word, over windows that slide along the text."""

from __future__ import annotations

import math
from typing import Any

from scalesearch.tasks.base import Metric, MetricOptions, Task, Texts

METRICS = {"perplexity": Metric("min", 1.0, "Perplexity"),
           "word_perplexity": Metric("min", 1.0, "Perplexity per word")}


def count_words(lines: Any) -> int:
    """Number of words, apart by blanks, plus an end of line for each line."""
    return sum(len(line.split()) + 1 for line in lines)


def perplexity_metrics(
        loss: float, tokens: int, texts: Texts, options: MetricOptions) -> dict[str, Any]:
    """Perplexity per token and per word, with a signature.

    ``loss``: mean of ``tokens`` tokens (ends of lines among them), in nats. A perplexity beyond a
    float is None.
    """
    count = count_words(texts.target)
    signature = (f"window:{options.window}|stride:{options.stride}|tokens:{tokens}|words:{count}, "
                 "apart by blanks, and an end of line each")
    return {"perplexity": perplexity(loss), "word_perplexity": perplexity(loss * tokens / count),
            "perplexity_signature": signature}


def perplexity(loss: float) -> float | None:
    """Exponential of the loss; None where that overflows."""
    return math.exp(loss) if loss < 700 else None


TASK = Task("language-model", "text", METRICS, ("window", "stride"), score_loss=perplexity_metrics,
            model_type="decoder-only")
