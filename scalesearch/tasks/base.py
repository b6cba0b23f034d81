"""Tasks: the files that a model learns from and the metrics that score it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from scalesearch.tasks.edits import Edits

FORMS = ("pairs", "corrections", "text")


class MetricOptions(Protocol):
    """Fields of a data spec that decide which metrics there are."""

    @property
    def tokenised(self) -> bool: ...
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
        best: the end of its scale.
        words: its name in figures and tables.
    """

    direction: str
    best: float
    words: str


@dataclass(frozen=True)
class Texts:
    """Sources and references, line by line, that hypotheses are scored against.

    ``gold``: for each sentence the edits of each annotator, where there are any.
    """

    source: Sequence[str]
    target: Sequence[str]
    gold: Sequence[Sequence[Edits]] | None = None


@dataclass(frozen=True)
class Task:
    """Task: its form of files, its metrics and how they are computed.

    A module of this package that defines one as ``TASK`` registers it in ``TASKS``.

    Attributes:
        name: as ``task:`` of a data file writes it.
        form: of its files: ``pairs`` (line i of one file answers line i of the other), ``corrections`` (pairs, or
            M2 files of gold edits), ``text`` (one file).
        keys: fields of a data spec that only some tasks have, and this one does.
        metrics: that it always has; the first is the one that validations watch. Loss, perplexity and loss per
            character are every task's; of these only the last compares models of different vocabularies.
        optional: further metrics, each with the field of a data spec that asks for it.
        score: maps hypotheses, texts and data spec to metrics with their signatures; None where nothing is generated.
        of_loss: maps loss (nats a token), tokens, texts and data spec to metrics; None where there are no others.
        model: the kind of model that it needs; None for any.
        check: raises UserError where a metric that the spec asks for cannot be computed here.
    """

    name: str
    form: str
    metrics: Mapping[str, Metric]
    keys: tuple[str, ...] = ()
    optional: Mapping[str, tuple[Metric, str]] = field(default_factory=dict)
    score: Callable[[Sequence[str], Texts, MetricOptions], dict[str, Any]] | None = None
    of_loss: Callable[[float, int, Texts, MetricOptions], dict[str, Any]] | None = None
    model: str | None = None
    check: Callable[[MetricOptions], None] = field(default=lambda options: None)

    @property
    def main(self) -> str:
        """Name of the metric that validations watch and figures show."""
        return next(iter(self.metrics))

    def measures(self, options: MetricOptions) -> dict[str, Metric]:
        """All metrics of a training on such data."""
        further = {name: metric for name, (metric, key) in self.optional.items()
                   if getattr(options, key) not in (None, False)}
        return {**self.metrics, **further, **COMMON}


PER_TOKEN = {"loss": Metric("min", 0.0, "Loss (nats per token)"), "perplexity": Metric("min", 1.0, "Perplexity")}
COMMON = {**PER_TOKEN, "loss_per_char": Metric("min", 0.0, "Loss per character (nats)")}
MEASURED = {"latency": Metric("min", 0.0, "Latency (ms per sentence, one at a time, greedy)"),
            "memory": Metric("min", 0.0, "Peak memory of training (MiB)")}
