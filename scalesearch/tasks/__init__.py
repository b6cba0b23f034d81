"""Tasks and their metrics: translation, summarisation, grammatical error correction, language modelling.

A task is one module here that defines ``TASK``. Scores are of plain lines of text: nothing here
knows of models, and a library that a metric needs is imported when it is computed.
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

__all__ = ["COMMON_METRICS", "FILE_FORMATS", "EFFICIENCY_METRICS", "METRICS", "PER_TOKEN_METRICS",
           "TASKS", "Metric", "MetricOptions", "Task", "Texts"]

_MODULES = [importlib.import_module(f"{__name__}.{module.name}")
            for module in pkgutil.iter_modules(__path__)]
TASKS: dict[str, Task] = {
    module.TASK.name: module.TASK for module in _MODULES if hasattr(module, "TASK")}


# All there are: of tasks that generate, of every task, of text alone, measured on the machine.
METRICS: dict[str, Metric] = {}
for _task in sorted(TASKS.values(), key=lambda task: task.score is None):
    METRICS |= {} if _task.score else COMMON_METRICS
    METRICS |= {**_task.metrics,
                **{name: metric for name, (metric, _) in _task.optional_metrics.items()}}
METRICS |= EFFICIENCY_METRICS
