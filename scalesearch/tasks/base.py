"""Interfaces of tasks: file formats and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from scalesearch.tasks.edits import Edits

FILE_FORMATS = ("pairs", "corrections", "text", "labels")


class MetricOptions(Protocol):
    """Fields of a data spec that determine the metrics."""

    target: str | None
    tokenized: bool
    tokenize: str
    comet: str | None
    window: int | None
    stride: int | None


@dataclass(frozen=True)
class Metric:
    """Metric of a trained model.

    Attributes:
        direction: ``max`` or ``min``, whichever is better.
        best_value: the best possible value.
        label: name in figures and tables.
        decimals: printed decimals; more than two for scores that are below 1 or close to it.
    """

    direction: str
    best_value: float
    label: str
    decimals: int = 2


@dataclass(frozen=True)
class Texts:
    """Lines of sources and references that hypotheses are scored against.

    Attributes:
        target: the first reference of each source.
        gold_edits: for each sentence the edits of each annotator, if any.
        more_references: further references; each has a line per source.
    """

    source: Sequence[str]
    target: Sequence[str]
    gold_edits: Sequence[Sequence[Edits]] | None = None
    more_references: Sequence[Sequence[str]] = ()

    @property
    def references(self) -> list[list[str]]:
        """All references; each has a line per source."""
        return [list(lines) for lines in (self.target, *self.more_references)]


@dataclass(frozen=True)
class Task:
    """Task: its file format, its metrics and the functions that compute them.

    A module of this package registers a task by defining it as ``TASK``.

    Attributes:
        name: value of ``task:`` in a data file.
        file_format: ``pairs`` (line i of one file belongs to line i of the other), ``corrections``
            (pairs, or M2 files
            of gold edits), ``text`` (one file), or ``labels`` (pairs of a text and its class).
        metrics: metrics that are always computed. The first is the main metric. In addition, every
            task has loss,
            perplexity and loss per character; of these only the last compares models with different
            vocabularies.
        data_keys: fields of a data spec that this task uses but not every task.
        optional_metrics: further metrics, each with the field of a data spec that enables it.
        score: maps hypotheses, texts and data spec to metrics with their signatures; None if the
            task generates no text.
        score_loss: maps loss (nats per token), tokens, texts and data spec to metrics; None if it
            has no such metrics.
        score_correct: maps the number of correct labels, and of labels, to metrics; None if the
            task has neither masked tokens nor classes.
        model_types: the model types that can do the task.
        target_noun: name of the target of a pair.
        check_options: raises UserError if a metric that the spec enables cannot be computed here.
        check_texts: returns notes about how texts are scored; raises UserError if they cannot be.
    """

    name: str
    file_format: str
    metrics: Mapping[str, Metric]
    data_keys: tuple[str, ...] = ()
    optional_metrics: Mapping[str, tuple[Metric, str]] = field(default_factory=dict)
    score: Callable[[Sequence[str], Texts, MetricOptions], dict[str, Any]] | None = None
    score_loss: Callable[[float, int, Texts, MetricOptions], dict[str, Any]] | None = None
    score_correct: Callable[[int, int], dict[str, Any]] | None = None
    model_types: tuple[str, ...] = ("encoder-decoder", "decoder-only")
    target_noun: str = "target"
    check_options: Callable[[MetricOptions], None] = field(default=lambda options: None)
    check_texts: Callable[[Texts, MetricOptions], Iterable[str]] = field(
        default=lambda texts, options: ())

    @property
    def label_noun(self) -> str:
        """Name of one label of the loss."""
        return {"labels": "label", "text": "token"}.get(self.file_format, "target token")

    @property
    def has_classes(self) -> bool:
        """Whether the target of a text is its class."""
        return self.file_format == "labels"

    @property
    def generates_text(self) -> bool:
        """Whether its models have a decoder."""
        return self.model_types != ("encoder-only",)

    @property
    def masks_tokens(self) -> bool:
        """Whether the labels are masked tokens of the text."""
        return self.file_format == "text" and self.score_correct is not None

    @property
    def main_metric(self) -> str:
        """Name of the metric that validation monitors and figures show."""
        return next(iter(self.metrics))

    def metrics_for(self, options: MetricOptions) -> dict[str, Metric]:
        """Return all metrics of a training run on such data."""
        enabled = {name: metric for name, (metric, key) in self.optional_metrics.items()
                   if getattr(options, key) not in (None, False)}
        return {**self.metrics, **enabled, **COMMON_METRICS}


PER_TOKEN_METRICS = {"loss": Metric("min", 0.0, "Loss (nats per token)", 3),
                     "perplexity": Metric("min", 1.0, "Perplexity")}
COMMON_METRICS = {**PER_TOKEN_METRICS,
                  "loss_per_char": Metric("min", 0.0, "Loss (nats per character)", 4)}
EFFICIENCY_METRICS = {"latency": Metric("min", 0.0,
                                        "Latency (ms per sentence, batch size 1, greedy)"),
                      "memory": Metric("min", 0.0, "Peak memory of training (MiB)")}
