"""Display of a training run, in a terminal or a notebook: progress bar and scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scalesearch.tasks import METRICS, TASKS, format_score
from scalesearch.terminal import format_count, format_duration, make_table
from scalesearch.training.result import Result

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@contextmanager
def training_bar(console: Console) -> Iterator[Any]:
    """Context with a function that shows the reports of a trainer.

    Validations are lines.
    """
    from rich.progress import BarColumn, Progress, TextColumn

    progress = Progress(TextColumn("{task.description}"), BarColumn(),
                        TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.fields[facts]}"),
                        console=console)
    task = progress.add_task("training", total=1.0, facts="")

    def report(event: dict[str, Any]) -> None:
        progress.start()
        if event["type"] == "update":
            eta = event["eta_seconds"]
            left = "" if eta is None else f" · {format_duration(eta)} left"
            progress.update(task, completed=min(1.0, event["share"]),
                            facts=f"update {event['step']:,} · loss {event['loss']:.3f} · "
                            f"{event['tokens_per_second']:,.0f} tokens/s{left}")
        elif event["type"] == "validation":
            progress.print(_line(event))
        elif event["type"] == "decode":
            done = event["done"] / event["total"]
            progress.update(task, description="translating", completed=done,
                            facts=f"{event['done']} sentences")

    try:
        yield report
    finally:
        if progress.live.is_started:
            progress.stop()


def _line(event: dict[str, Any]) -> str:
    train = "-" if event["train_loss"] is None else f"{event['train_loss']:.3f}"
    scores = [f" · {METRICS[name].label} {format_score(event[name], name)}"
              for name in METRICS if event.get(name) is not None and name != "loss"]
    return (f"update {event['step']:>7,} · {format_duration(event['cpu_seconds']):>6} CPU · train "
            f"{train} · validation {event['validation_loss']:.3f}{''.join(scores)}")


def score_table(metrics: dict[str, Any]) -> Table:
    """Make a table of the metrics of each scored split."""
    # in the result file only
    names = [name for name in METRICS if name in metrics and name != "loss_per_char"]
    labels = {name: METRICS[name].label.partition(" (")[0] for name in names}
    headings = ["",
                *(labels[name].lower() if name in ("loss", "perplexity") else labels[name]
                  for name in names)]
    splits = {metrics["split"]: metrics} | ({"test": metrics["test"]} if "test" in metrics else {})
    rows = [(split, *(_format_score(name, scores.get(name)) for name in names))
            for split, scores in splits.items()]
    return make_table(headings, rows)


def _format_score(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return format_score(value, name)


def protocol_lines(result: Result) -> list[str]:
    """Describe how the scores were computed, and their cost."""
    metrics = result.metrics
    signatures = []
    for key, text in metrics.items():
        if key.endswith("_signature"):
            name = key.removesuffix("_signature")
            signatures.append(f"{METRICS[name].label if name in METRICS else name} {text}")
    decoding = [metrics["decoding"]] if "decoding" in metrics else []
    lines = [" · ".join([*decoding, f"weights: {metrics['weights']}", *signatures])]
    lines += [f"{key}: {metrics[f'{key}_protocol']}"
              for key in ("latency", "memory") if key in metrics]
    noun = TASKS[metrics.get("task", "translation")].label_noun
    lines.append(f"{result.n_params:,} params · {format_count(result.steps, 'update')}, "
                 f"{format_count(result.tokens, noun)} in "
                 f"{format_duration(result.cpu_seconds)} CPU "
                 f"({result.tokens_per_cpu_second:,.0f} {noun.removeprefix('target ')}s per "
                 "CPU-second), "
                 f"with scoring {format_duration(result.total_cpu_seconds)} CPU, "
                 f"{format_duration(result.total_seconds)} wall-clock · {result.dtype} on "
                 f"{result.device} · seed {result.seed}")
    if metrics["synthetic"]:
        lines.append("synthetic corpus: the score only compares architectures")
    return lines
