"""Tasks and their metrics.

The tasks are translation, summarization, grammatical error correction, language modeling and
classification. A task is a module of this package that defines ``TASK``. Metrics score plain lines
of text and do not depend on models. A library that a metric needs is imported when the metric is
computed.
"""

import importlib
import pkgutil

from scalesearch.tasks.base import (
    COMMON_METRICS,
    EFFICIENCY_METRICS,
    FILE_FORMATS,
    PER_TOKEN_METRICS,
    Metric,
    MetricOptions,
    Task,
    Texts,
)

__all__ = ["COMMON_METRICS", "EFFICIENCY_METRICS", "FILE_FORMATS", "METRICS", "PER_TOKEN_METRICS",
           "TASKS", "Metric", "MetricOptions", "Task", "Texts",
           "format_score", "score_decimals"]

_MODULES = [importlib.import_module(f"{__name__}.{module.name}")
            for module in pkgutil.iter_modules(__path__)]
TASKS: dict[str, Task] = {
    module.TASK.name: module.TASK for module in _MODULES if hasattr(module, "TASK")}


# In this order: metrics of generated text, common metrics, metrics of language models, efficiency.
METRICS: dict[str, Metric] = {}
for _task in sorted(TASKS.values(), key=lambda task: task.score is None):
    METRICS |= {} if _task.score else COMMON_METRICS
    METRICS |= {**_task.metrics,
                **{name: metric for name, (metric, _) in _task.optional_metrics.items()}}
METRICS |= EFFICIENCY_METRICS


def format_score(value: float, name: str, sign: str = "-") -> str:
    """Format a score of the metric ``name``, also on the test split, or a difference of scores.

    ``sign`` is ``+`` to print the sign always.
    """
    return f"{value:{sign}.{score_decimals(name)}f}"


def score_decimals(name: str) -> int:
    """Decimals of scores of the metric ``name``; two if it is unknown."""
    metric = METRICS.get(name.removeprefix("test."))
    return metric.decimals if metric else 2
