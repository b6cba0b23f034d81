"""Result of a training: plain values, the same in memory and in ``result.json``."""

import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scalesearch.files import read_json, write_json
from scalesearch.train.effort import Effort

RESULT_FILE = "result.json"
VERSIONED_PACKAGES = ("scalesearch", "torch", "numpy", "sentencepiece", "sacrebleu", "rouge-score",
                      "unbabel-comet")


@dataclass
class Result:
    """Result of one training, finished, failed or paused.

    Attributes:
        state: ``complete``, ``failed``, or ``paused`` before the end of its budget.
        reason: why it failed, in words; else empty.
        metrics: of the final weights. On the split ``split``: ``bleu`` and ``chrf`` (sacreBLEU,
            detokenized text)
            with ``bleu_signature``, ``chrf_signature``, ``length_ratio`` (hypotheses to references)
            and ``decode`` (how
            it was translated), ``loss`` (nats a token, EOS included, no smoothing), ``perplexity``
            and
            ``loss_per_char`` (nats a character of the reference, ends of lines included), the one
            of them that
            compares vocabularies. ``validation_loss``, ``validation_loss_per_char``, ``validation_perplexity``.
            ``test``: the same
            scores on test, where both were asked for. ``weights``: which weights these are.
            ``synthetic``: the corpus
            was generated. ``task``: whose
            metrics these are; those of others than translation stand in place of BLEU and chrF,
            with signatures
            likewise (:mod:`scalesearch.tasks`). ``latency`` (ms) and ``memory`` (MiB), where the
            recipe asks for them,
            with ``latency_protocol`` and ``memory_protocol``. ``proxies``: zero-cost scores of the
            first weights, where
            asked for.
        curve: a mapping each validation: step, tokens, cpu_seconds, seconds, lr, train_loss,
            validation_loss,
            validation_loss_per_char, bleu or the first metric of another task (of the validation split,
            greedy; None unless
            asked for).
        steps, tokens: updates, and real target tokens trained on.
        seconds, cpu_seconds: wall-clock and CPU time (of all processes) of updates, which budgets
            are measured in.
        total_seconds, total_cpu_seconds: with validation, decoding and saving.
        efforts: part of the total (see :class:`.effort.Meter`) to its wall-clock and CPU time; they
            add up to it.
        tokens_per_cpu_second: target tokens trained on a CPU-second of updates.
        stop_reason: ``budget`` or ``patience``.
        notes: what happened on the way, such as a batch that was split for lack of memory.
        processes: how many shared each update.
        device, dtype, seed, n_params, recipe, corpus_hash, architecture_id, versions: what it was.
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
    versions: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        return asdict(self)

    def write(self, directory: Path) -> None:
        """Writes ``directory/result.json`` atomically."""
        write_json(directory / RESULT_FILE, self.to_json())

    @classmethod
    def read(cls, directory: Path) -> "Result | None":
        """Reads the result in ``directory``; None if there is none.

        Raises UserError where it is damaged.
        """
        try:
            return read_json(directory / RESULT_FILE, cls)
        except FileNotFoundError:
            return None


def package_versions(*others: str) -> dict[str, str]:
    """Versions of Python, of the packages that results depend on, and of ``others``, where installed."""
    installed = {"python": platform.python_version()}
    for package in (*VERSIONED_PACKAGES, *others):
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed
