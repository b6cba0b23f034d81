"""The tasks: translation, summarisation, grammatical error correction, language modelling; each with its metrics.

A task is one module here that defines ``TASK``. Scores are of plain lines of text: nothing here knows of models, and
a library that a metric needs is imported when it is computed.
"""

import importlib
import pkgutil

from scalesearch.tasks.base import COMMON, FORMS, MEASURED, Asked, Metric, Task, Texts

__all__ = ["COMMON", "FORMS", "MEASURED", "METRICS", "TASKS", "Asked", "Metric", "Task", "Texts"]

_MODULES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
TASKS: dict[str, Task] = {module.TASK.name: module.TASK for module in _MODULES if hasattr(module, "TASK")}


class _Everything:
    """A spec that asks for every metric there is."""

    tokenised, comet, window, stride = True, "", 1, 1


def _all_metrics() -> dict[str, Metric]:
    """Those of what is generated first, then those of every task, then those of text alone, then what is measured."""
    generated = [task for task in TASKS.values() if task.score is not None]
    others = [task for task in TASKS.values() if task.score is None]
    found: dict[str, Metric] = {}
    for task in generated:
        found |= {**task.metrics, **task.optional(_Everything())}
    found |= COMMON
    for task in others:
        found |= {**task.metrics, **task.optional(_Everything())}
    return found | MEASURED


METRICS = _all_metrics()
