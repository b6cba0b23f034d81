"""Result of a training run: plain values in memory and in ``result.json``."""

import functools
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

from scalesearch.files import read_json, write_json
from scalesearch.training.effort import Effort

RESULT_FILE = "result.json"
VERSIONED_PACKAGES = ("scalesearch", "torch", "numpy", "sentencepiece", "sacrebleu", "rouge-score",
                      "unbabel-comet")
PLUGIN_GROUPS = ("scalesearch.blocks", "scalesearch.samplers")


@dataclass
class Result:
    """Result of one training run: finished, failed or paused.

    ``metrics`` describes the final weights:

    - On the split ``split``: ``bleu`` and ``chrf`` (sacreBLEU, detokenized text) with
      ``bleu_signature``, ``chrf_signature`` and ``length_ratio`` (hypotheses to references). Other
      tasks have other metrics, likewise with signatures; see :mod:`scalesearch.tasks`.
    - ``decoding``: how the texts were translated.
    - ``loss`` (nats per token, EOS included, no smoothing), ``perplexity`` and ``loss_per_char``
      (nats per character of the reference, ends of lines included). Only the last compares models
      with different vocabularies.
    - ``validation_loss``, ``validation_loss_per_char``, ``validation_perplexity``.
    - ``test``: the same scores on the test split, if the recipe uses both splits.
    - ``weights``: which weights were scored. ``task``: the task. ``synthetic``: the corpus was
      generated.
    - ``latency`` (ms) and ``memory`` (MiB), if the recipe measures them, with ``latency_protocol``
      and ``memory_protocol``.
    - ``proxies``: zero-cost scores of the initial weights, if requested.

    Attributes:
        state: ``complete``, ``failed``, or ``paused`` before the end of the budget.
        reason: why the run failed; else empty.
        curve: a mapping per validation: step, tokens, cpu_seconds, seconds, share, lr, train_loss,
            validation_loss,
            validation_loss_per_char, and bleu or the main metric of another task (greedy; None
            unless requested).
        steps, tokens: updates, and target tokens without padding.
        seconds, cpu_seconds: wall-clock and CPU time of updates, which budgets count.
        total_seconds, total_cpu_seconds: including validation, decoding and saving.
        efforts: wall-clock and CPU time by part; see :class:`.effort.TrainingTimer`. They add up to
            the total.
        phases: wall-clock seconds by phase, which include the start of the worker; see
            :class:`.effort.TrainingTimer`. Empty for runs of earlier versions.
        tokens_per_cpu_second: target tokens per CPU-second of updates.
        stop_reason: ``budget`` or ``patience``.
        notes: events during training, such as a batch that was split because memory ran out.
        initial_model: ``folder`` and hash of the ``weights`` of the model that was fine-tuned;
            empty for runs from new weights.
        processes: number of processes that shared each update. Earlier versions allowed more
            than one; such runs are not resumed.
    """

    state: str
    reason: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)
    curve: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    total_seconds: float = 0.0
    total_cpu_seconds: float = 0.0
    efforts: dict[str, Effort] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    tokens_per_cpu_second: float = 0.0
    stop_reason: str = ""
    notes: list[str] = field(default_factory=list)
    processes: int = 1
    device: str = ""
    dtype: str = ""
    seed: int = 0
    n_params: int = 0
    recipe: dict[str, Any] = field(default_factory=dict)
    corpus_hash: str = ""
    architecture_id: str = ""
    initial_model: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Write ``directory/result.json`` atomically."""
        write_json(directory / RESULT_FILE, asdict(self))

    @classmethod
    def read(cls, directory: Path) -> "Result | None":
        """Read the result in ``directory``; None if it does not exist.

        Raises:
            UserError: the file is damaged.
        """
        try:
            return read_json(directory / RESULT_FILE, cls)
        except FileNotFoundError:
            return None


def package_versions(*others: str) -> dict[str, str]:
    """Return versions of Python, of relevant packages, of plugins and of ``others``."""
    installed = {"python": platform.python_version(), **_plugin_versions()}
    for package in (*VERSIONED_PACKAGES, *others):
        if package_version := _package_version(package):
            installed[package] = package_version
    return installed


@functools.cache
def _plugin_versions() -> dict[str, str]:
    """Return the versions of the installed packages that register blocks or samplers."""
    return {point.dist.name: point.dist.version for group in PLUGIN_GROUPS
            for point in entry_points(group=group) if point.dist}


@functools.cache
def _package_version(package: str) -> str | None:
    """Return the version of an installed package, which takes milliseconds to find."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
