"""Progress bar of a training run, in a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scalesearch.terminal import format_duration

if TYPE_CHECKING:
    from rich.console import Console


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
            progress.update(task, completed=min(1.0, event["share"]), facts=_facts(event))
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


def _facts(event: dict[str, Any]) -> str:
    eta = event["eta_seconds"]
    left = "" if eta is None else f" · {format_duration(eta)} left"
    return (f"update {event['step']:,} · loss {event['loss']:.3f} · "
            f"{event['tokens_per_second']:,.0f} tokens/s{left}")


def _line(event: dict[str, Any]) -> str:
    from scalesearch.tasks import METRICS

    train = "-" if event["train_loss"] is None else f"{event['train_loss']:.3f}"
    scores = [f" · {METRICS[name].label} {event[name]:.1f}" for name in METRICS
              if event.get(name) is not None and name != "loss"]
    return (f"update {event['step']:>7,} · {format_duration(event['cpu_seconds']):>6} CPU · train "
            f"{train} · valid {event['validation_loss']:.3f}{''.join(scores)}")
