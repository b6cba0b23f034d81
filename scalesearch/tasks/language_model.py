"""Language modeling: perplexity and bits per byte, with a sliding window."""

from __future__ import annotations

import math
from typing import Any

from scalesearch.tasks.base import Metric, MetricOptions, Task, Texts

METRICS = {"perplexity": Metric("min", 1.0, "Perplexity"),
           "word_perplexity": Metric("min", 1.0, "Perplexity per word"),
           "bits_per_byte": Metric("min", 0.0, "Bits per byte", 4)}


def count_words(lines: Any) -> int:
    """Count words, which are separated by blanks, and one end of line per line."""
    return sum(len(line.split()) + 1 for line in lines)


def count_bytes(lines: Any) -> int:
    """Count UTF-8 bytes of lines as they are tokenized, and one end of line per line.

    Tokenizers read a run of blanks as one blank, and no blanks around a line.
    """
    return sum(len(" ".join(filter(None, line.split(" "))).encode()) + 1 for line in lines)


def perplexity_metrics(
        loss: float, tokens: int, texts: Texts, options: MetricOptions) -> dict[str, Any]:
    """Compute perplexity per token and per word and bits per byte, with a signature.

    Bits per byte compare models with different vocabularies, also across languages.

    Args:
        loss: mean over ``tokens`` tokens, ends of lines included, in nats.

    Returns:
        The metrics; a perplexity that overflows is None.
    """
    count = count_words(texts.target)
    n_bytes = count_bytes(texts.target)
    signature = (f"window:{options.window}|stride:{options.stride}|tokens:{tokens}|words:{count}, "
                 f"separated by blanks, and one end of line per line|bytes:{n_bytes}")
    return {"perplexity": perplexity(loss), "word_perplexity": perplexity(loss * tokens / count),
            "bits_per_byte": loss * tokens / (n_bytes * math.log(2)),
            "perplexity_signature": signature}


def perplexity(loss: float) -> float | None:
    """Exponential of the loss; None if it overflows."""
    return math.exp(loss) if loss < 700 else None


TASK = Task("language-model", "text", METRICS, ("window", "stride"), score_loss=perplexity_metrics,
            model_types=("decoder-only",))
