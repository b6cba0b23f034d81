"""The result of a training, for people: scores of each split, and how they came about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scalesearch.tasks import METRICS
from scalesearch.terminal import format_duration, make_table
from scalesearch.train.result import Result

if TYPE_CHECKING:
    from rich.table import Table


def score_table(metrics: dict[str, Any]) -> Table:
    """The metrics of each split that was scored."""
    # which the result file has
    names = [name for name in METRICS if name in metrics and name != "loss_per_char"]
    words = {name: METRICS[name].label.partition(" (")[0] for name in names}
    headings = ["",
                *(words[name].lower() if name in ("loss", "perplexity") else words[name]
                  for name in names)]
    scored = {metrics["split"]: metrics} | ({"test": metrics["test"]} if "test" in metrics else {})
    rows = [(split, *(_number(name, own.get(name)) for name in names))
            for split, own in scored.items()]
    return make_table(headings, rows)


def _number(name: str, value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if name == "loss" else f"{value:.2f}"


def protocol_lines(result: Result) -> list[str]:
    """How the numbers came about, and what they cost."""
    metrics = result.metrics
    signed = {key.removesuffix("_signature"): text
              for key, text in metrics.items() if key.endswith("_signature")}
    signatures = (f"{METRICS[name].label if name in METRICS else name} {text}"
                  for name, text in signed.items())
    device = result.device if result.processes == 1 else f"{result.processes} x {result.device}"
    synthetic = ["synthetic corpus: the score compares architectures, nothing else"] if metrics[
        "synthetic"] else []
    decoding = [metrics["decoding"]] if "decoding" in metrics else []
    measured = [f"{key}: {metrics[f'{key}_protocol']}"
                for key in ("latency", "memory") if key in metrics]
    return [" · ".join([*decoding, f"weights: {metrics['weights']}", *signatures]), *measured,
            f"{result.n_params:,} params · {result.steps:,} updates, {result.tokens:,} target "
            f"tokens in {format_duration(result.cpu_seconds)} CPU "
            f"({result.tokens_per_cpu_second:,.0f} tokens a CPU-second), "
            f"{format_duration(result.total_seconds)} with scoring · {result.dtype} on {device} · "
            f"seed {result.seed}", *synthetic]
