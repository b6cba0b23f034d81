"""What a task is: the files that it learns from, and the metrics that say how well it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from scalesearch.tasks.edits import Edits

FORMS = ("pairs", "corrections", "text")


class Asked(Protocol):
    """What of a data spec decides which metrics there are."""

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
    """A number that says how good a model is: ``max`` or ``min`` of it is wanted, and ``best`` is the end of its scale.

    ``words`` is how a figure or table calls it.
    """

    direction: str
    best: float
    words: str


@dataclass(frozen=True)
class Texts:
    """What hypotheses are scored against, a line each: the sources, the references, and where there are, gold edits.

    ``gold`` holds, for each sentence, the edits of each annotator.
    """

    source: Sequence[str]
    target: Sequence[str]
    gold: Sequence[Sequence[Edits]] | None = None


def _none(asked: Asked) -> Mapping[str, Metric]:
    return {}


@dataclass(frozen=True)
class Task:
    """One task; a module of this package that has one as ``TASK`` puts it among ``TASKS``.

    Attributes:
        name: as ``task:`` of a data file writes it.
        form: of its files: ``pairs`` (line i of one file answers line i of the other), ``corrections`` (pairs, or
            M2 files of gold edits), ``text`` (one file).
        keys: fields of a data spec that only some tasks have, and this one does.
        metrics: that it always has; the first is the one that validations watch. Loss and perplexity are every task's.
        optional: that a data spec asks for besides.
        score: hypotheses, what to score them against, and the data spec, to the metrics with their signatures; None
            where nothing is generated.
        of_loss: nats a token, tokens, texts and data spec to metrics; None where the loss alone says it.
        model: the kind of model that it needs; None for any.
        refuse: raises UserError where what the spec asks for cannot be measured here.
    """

    name: str
    form: str
    metrics: Mapping[str, Metric]
    keys: tuple[str, ...] = ()
    optional: Callable[[Asked], Mapping[str, Metric]] = field(default=_none)
    score: Callable[[Sequence[str], Texts, Asked], dict[str, Any]] | None = None
    of_loss: Callable[[float, int, Texts, Asked], dict[str, Any]] | None = None
    model: str | None = None
    refuse: Callable[[Asked], None] = field(default=lambda asked: None)

    @property
    def main(self) -> str:
        """The metric that validations watch and figures show."""
        return next(iter(self.metrics))

    def measures(self, asked: Asked) -> dict[str, Metric]:
        """Every metric that a training on such data ends with."""
        return {**self.metrics, **self.optional(asked), **COMMON}


COMMON = {"loss": Metric("min", 0.0, "Loss (nats per token)"), "perplexity": Metric("min", 1.0, "Perplexity")}
MEASURED = {
    "latency": Metric("min", 0.0, "Latency (ms per sentence, one at a time, greedy)"),
    "memory": Metric("min", 0.0, "Peak memory of training (MiB)"),
}
