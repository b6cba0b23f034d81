"""Tasks and their metrics: translation, summarisation, grammatical error correction, language modelling.

A task is one module here that defines ``TASK``. Scores are of plain lines of text: nothing here knows of models, and
a library that a metric needs is imported when it is computed.
"""

import importlib
import pkgutil

from scalesearch.tasks.base import COMMON, FORMS, MEASURED, Metric, MetricOptions, Task, Texts

__all__ = ["COMMON", "FORMS", "MEASURED", "METRICS", "TASKS", "Metric", "MetricOptions", "Task", "Texts"]

_MODULES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
TASKS: dict[str, Task] = {module.TASK.name: module.TASK for module in _MODULES if hasattr(module, "TASK")}


class _AllOptions:
    """Options that ask for every metric there is."""

    tokenised, comet, window, stride = True, "", 1, 1


def _all_metrics() -> dict[str, Metric]:
    """All metrics: of generating tasks, of every task, of text alone, measured on the machine."""
    generated = [task for task in TASKS.values() if task.score is not None]
    others = [task for task in TASKS.values() if task.score is None]
    metrics: dict[str, Metric] = {}
    for task in generated:
        metrics |= {**task.metrics, **task.optional(_AllOptions())}
    metrics |= COMMON
    for task in others:
        metrics |= {**task.metrics, **task.optional(_AllOptions())}
    return metrics | MEASURED


METRICS = _all_metrics()
