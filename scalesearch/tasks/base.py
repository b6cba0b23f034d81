"""Tasks: the files that a model learns from and the metrics that score it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from scalesearch.tasks.edits import Edits

FILE_FORMATS = ("pairs", "corrections", "text")


class MetricOptions(Protocol):
    """Fields of a data spec that decide which metrics there are."""

    @property
    def tokenized(self) -> bool: ...
    @property
    def comet(self) -> str | None: ...
    @property
    def window(self) -> int | None: ...
    @property
    def stride(self) -> int | None: ...


@dataclass(frozen=True)
class Metric:
    """Metric of a trained model.

    Attributes:
        direction: ``max`` or ``min``, whichever is better.
        best_value: the end of its scale.
        label: its name in figures and tables.
    """

    direction: str
    best_value: float
    label: str


@dataclass(frozen=True)
class Texts:
    """Sources and references, line by line, that hypotheses are scored against.

    ``gold_edits``: for each sentence the edits of each annotator, where there are any.
    """

    source: Sequence[str]
    target: Sequence[str]
    gold_edits: Sequence[Sequence[Edits]] | None = None


@dataclass(frozen=True)
class Task:
    """Task: its form of files, its metrics and how they are computed.

    A module of this package that defines one as ``TASK`` registers it in ``TASKS``.

    Attributes:
        name: as ``task:`` of a data file writes it.
        file_format: of its files: ``pairs`` (line i of one file answers line i of the other),
            ``corrections`` (pairs, or
            M2 files of gold edits), ``text`` (one file).
        data_keys: fields of a data spec that only some tasks have, and this one does.
        metrics: that it always has; the first is the one that validations watch. Loss, perplexity
            and loss per
            character are every task's; of these only the last compares models of different
            vocabularies.
        optional_metrics: further metrics, each with the field of a data spec that asks for it.
        score: maps hypotheses, texts and data spec to metrics with their signatures; None where
            nothing is generated.
        score_loss: maps loss (nats a token), tokens, texts and data spec to metrics; None where
            there are no others.
        model_type: the kind of model that it needs; None for any.
        check_options: raises UserError where a metric that the spec asks for cannot be computed
            here.
    """

    name: str
    file_format: str
    metrics: Mapping[str, Metric]
    data_keys: tuple[str, ...] = ()
    optional_metrics: Mapping[str, tuple[Metric, str]] = field(default_factory=dict)
    score: Callable[[Sequence[str], Texts, MetricOptions], dict[str, Any]] | None = None
    score_loss: Callable[[float, int, Texts, MetricOptions], dict[str, Any]] | None = None
    model_type: str | None = None
    check_options: Callable[[MetricOptions], None] = field(default=lambda options: None)

    @property
    def main_metric(self) -> str:
        """Name of the metric that validations watch and figures show."""
        return next(iter(self.metrics))

    def metrics_for(self, options: MetricOptions) -> dict[str, Metric]:
        """All metrics of a training on such data."""
        further = {name: metric for name, (metric, key) in self.optional_metrics.items()
                   if getattr(options, key) not in (None, False)}
        return {**self.metrics, **further, **COMMON_METRICS}


PER_TOKEN_METRICS = {"loss": Metric("min", 0.0, "Loss (nats per token)"),
                     "perplexity": Metric("min", 1.0, "Perplexity")}
COMMON_METRICS = {**PER_TOKEN_METRICS,
                  "loss_per_char": Metric("min", 0.0, "Loss per character (nats)")}
EFFICIENCY_METRICS = {"latency": Metric("min", 0.0,
                                        "Latency (ms per sentence, one at a time, greedy)"),
                      "memory": Metric("min", 0.0, "Peak memory of training (MiB)")}
