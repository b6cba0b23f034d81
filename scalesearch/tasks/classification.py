"""Classification of texts: accuracy."""

from __future__ import annotations

from typing import Any

from scalesearch.tasks.base import Metric, Task


def accuracy(correct: int, texts: int) -> dict[str, Any]:
    """Return the share of texts whose most probable class is correct, in percent."""
    return {"accuracy": 100 * correct / texts, "accuracy_signature": f"texts:{texts}"}


TASK = Task("classification", "labels", {"accuracy": Metric("max", 100.0, "Accuracy (%)")},
            score_correct=accuracy, model_types=("encoder-only",), target_noun="class")
