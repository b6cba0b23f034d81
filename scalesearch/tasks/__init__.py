"""The tasks: translation, summarisation, grammatical error correction, language modelling; each with its metrics.

A task is one module here that defines ``TASK``. Scores are of plain lines of text: nothing here knows of models, and
a library that a metric needs is imported when it is computed.
"""

import importlib
import pkgutil

from scalesearch.tasks.base import COMMON, FORMS, Asked, Metric, Task, Texts

__all__ = ["COMMON", "FORMS", "METRICS", "TASKS", "Asked", "Metric", "Task", "Texts"]

_MODULES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
TASKS: dict[str, Task] = {module.TASK.name: module.TASK for module in _MODULES if hasattr(module, "TASK")}


class _Everything:
    """A spec that asks for every metric there is."""

    tokenised, comet, window, stride = True, "", 1, 1


METRICS: dict[str, Metric] = {
    name: metric for task in TASKS.values() for name, metric in task.measures(_Everything()).items()
}
