"""Worker: builds, trains and scores the job of a folder.

It does not import Optuna or Ray.

::

    architecture.yaml   input: the architecture to train
    job.json            input: data, recipe, seed, threads; or teachers, data and decoding or top_k
    progress.json       progress, about once per second; may be lost
    lease.json          the worker that holds the job, and its heartbeat; removed at the end
    result.json         the result; written last and atomically
    rung-0.json         the result at a pause, in a study with rungs; the training can be resumed
"""

import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scalesearch.errors import option
from scalesearch.files import replace_non_finite, try_read_json, write_json
from scalesearch.signals import deferred_signals, interrupt_on_signal
from scalesearch.studies.executors.base import NotSharedError
from scalesearch.studies.executors.lease import (
    HEARTBEAT_TIMING,
    HeartbeatTiming,
    LeaseHeldError,
    check_lease,
    hold_lease,
    owns_lease,
)
from scalesearch.studies.trials.record import JobFile

RunJob = Callable[[Path, JobFile], Mapping[str, object]]
FILE_TIMEOUT = 5.0  # seconds until a file of the driver is visible on another machine


def train_job(folder: str, keeps_corpora: bool = False) -> None:
    """Train the trial in ``folder``, or resume it. A finished trial is not changed.

    A job with ``teachers`` translates the training text instead or, with ``top_k``, computes soft
    targets. A job with ``blocks`` makes replacements of the blocks of a trained model.

    Args:
        keeps_corpora: whether corpora are kept for later jobs of this process.

    Raises:
        UserError: the architecture, the data or the recipe is invalid.
        LeaseHeldError: another worker holds the folder.
    """
    start = time.perf_counter()

    def run(place: Path, job: JobFile) -> Mapping[str, object]:
        os.nice(max(0, job.get("nice", 0) - os.nice(0)))  # only the superuser may lower it
        os.environ["OMP_NUM_THREADS"] = str(job["threads"])
        import torch

        torch.set_num_threads(job["threads"])
        if "teachers" in job:
            return _distill(place, job)
        if "blocks" in job:
            return _replace_blocks(place, job)
        return _train(place, job, start, keeps_corpora)

    finish_job(Path(folder), run)


@cache
def _load_kept_corpus(spec: Any, folder: Path) -> Any:
    """Load a corpus once per process; its text is not read again."""
    from scalesearch.data import load_corpus

    return load_corpus(spec, folder)


def _train(folder: Path, job: JobFile, start: float, keeps_corpora: bool) -> Mapping[str, object]:
    from scalesearch.data import DataSpec, load_corpus
    from scalesearch.export.base import artifact_decoder, check_decoder
    from scalesearch.spaces import read_space
    from scalesearch.training import Recipe, read_checkpoint, train

    architecture = read_space(folder / "architecture.yaml").single_architecture()
    load = _load_kept_corpus if keeps_corpora else load_corpus
    corpus = load(DataSpec.from_mapping(job["data"]).with_vocab(*architecture.vocab_sizes),
                  Path(job["cache"]))
    recipe = Recipe.from_mapping(job["recipe"])
    check_decoder(recipe, architecture.block)
    initial_model = read_checkpoint(job["initial_model"]) if "initial_model" in job else None
    result = train(architecture, corpus, recipe, folder, seed=job["seed"],
                   initial_model=initial_model,
                   report=ProgressFile(folder), resume=True,
                   until_share=job.get("until_share", 1.0),
                   with_proxies=job.get("proxies", False), open_artifact=artifact_decoder,
                   start_seconds=time.perf_counter() - start)
    return asdict(result)


def _distill(folder: Path, job: JobFile) -> Mapping[str, object]:
    """Write a teacher's translations or soft targets.

    Those of earlier attempts are kept.
    """
    from scalesearch.data import DataSpec
    from scalesearch.training.scoring.distill import write_distilled_data
    from scalesearch.training.scoring.soft_targets import write_soft_targets

    progress = ProgressFile(folder)
    report_type = "soft_targets" if "top_k" in job else "decode"
    seconds_before = progress.read().cpu_seconds or 0.0
    start = time.process_time()

    def cpu_time() -> dict[str, float]:
        return {"cpu_seconds": seconds_before + time.process_time() - start}

    with deferred_signals() as stop:
        def report(done: int, total: int) -> None:
            progress({"type": report_type, "done": done, "total": total, **cpu_time()})
            stop.raise_if_requested()

        teachers = [Path(teacher) for teacher in job["teachers"]]
        out = folder / job["prefix"]
        data = DataSpec.from_mapping(job["data"])
        if "top_k" in job:
            facts = write_soft_targets(teachers, data, out, job["top_k"], report,
                                       Path(job["cache"]))
        else:
            facts = write_distilled_data(teachers, data, out, job["decoding"], report)
    return {"state": "complete", **facts, **cpu_time()}


def _replace_blocks(folder: Path, job: JobFile) -> Mapping[str, object]:
    """Make and score the replacements of the blocks of one layer, or measure combinations."""
    import msgspec

    from scalesearch.compression.alternatives import Alternative, Parent
    from scalesearch.compression.library import FitSettings, build_layer, measure_combinations
    from scalesearch.data import DataSpec, load_corpus
    from scalesearch.training import read_checkpoint

    blocks = job["blocks"]
    trained = read_checkpoint(blocks["parent"])
    data = DataSpec.from_mapping(job["data"]).with_vocab(*trained.architecture.vocab_sizes)
    corpus = load_corpus(data, Path(job["cache"]))
    progress = ProgressFile(folder)
    with deferred_signals() as stop:
        def report(done: int, total: int) -> None:
            progress({"type": "blocks", "done": done, "total": total})
            stop.raise_if_requested()

        parent = Parent.from_architecture(trained.architecture)
        if "combinations" in blocks:
            combinations = msgspec.convert(blocks["combinations"], list[list[Alternative]])
            return asdict(measure_combinations(parent, trained.model, corpus, combinations,
                                               folder.parent, report))
        return asdict(build_layer(
            parent, trained.model, corpus, blocks["stack"], blocks["layer"],
            msgspec.convert(blocks["alternatives"], list[Alternative]), folder.parent,
            msgspec.convert(blocks["fit"], FitSettings), report))


def finish_job(folder: Path, run: RunJob, timing: HeartbeatTiming = HEARTBEAT_TIMING) -> None:
    """Hold the lease of ``folder``, call ``run(folder, job)``, and write the result.

    Raises:
        Interrupted: by Ctrl-C, SIGTERM, or Ray.
        LeaseHeldError: another worker holds the folder, or has taken it over.
        NotSharedError: the folder does not exist on this machine.
    """
    # Taking the lock at once would create the folder on a machine that does not share it.
    deadline = time.monotonic() + FILE_TIMEOUT
    while not (folder / "job.json").is_file():
        if time.monotonic() > deadline:
            raise NotSharedError(f"the worker on {platform.node()} cannot find "
                                 f"{folder / 'job.json'}. The study's folder must be on a file "
                                 "system that all nodes of the cluster share, under the same path. "
                                 f"Move it there with {option('out')}, or remove that node from "
                                 f"the cluster; then continue with {option('resume')}")
        time.sleep(0.1)
    with interrupt_on_signal(), hold_lease(folder, timing):
        job = json.loads((folder / "job.json").read_text("utf-8"))
        result_file = folder / "result.json"
        pause_file = folder / rung_file(job.get("rung", -1))
        if result_file.exists() or pause_file.exists():  # rung -1 never exists: a run to the end
            return
        try:
            result = replace_non_finite(run(folder, job))
        except (KeyboardInterrupt, LeaseHeldError):
            raise
        except BaseException:
            with suppress(OSError):  # a full disk must not hide the error itself
                (folder / "crash.txt").write_text(traceback.format_exc(), "utf-8")
            raise
        if not owns_lease(folder):
            raise LeaseHeldError(f"{folder.name} was taken over by another worker")
        write_json(pause_file if result["state"] == "paused" else result_file, result)


def rung_file(rung: int) -> str:
    """Name of the file that a trial writes at ``rung``, counted from 0."""
    return f"rung-{rung}.json"


@dataclass(frozen=True)
class LastValidation:
    """Last validation of a training run; the loss in nats per token."""

    validation_loss: float | None = None


@dataclass(frozen=True)
class ProgressReport:
    """Progress of a worker. A training run and a teacher set different fields.

    Attributes:
        type: ``update``, ``validation``, ``decode``, ``soft_targets`` or ``done``.
        share: of the full budget that is done.
        seconds: wall time of the updates so far.
        cpu_seconds: CPU time of the updates so far, or of a teacher.
        done: number of sentences that are translated.
        total: number of sentences to translate.
    """

    type: str = ""
    share: float | None = None
    step: int | None = None
    loss: float | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    tokens_per_second: float | None = None
    eta_seconds: float | None = None
    done: int | None = None
    total: int | None = None
    validation: LastValidation | None = None


class ProgressFile:
    """``progress.json`` of a training run, written at most once in ``every`` seconds.

    The last validation is kept under ``validation``, and the times of the updates are kept while
    the final weights are scored. Otherwise the next report would overwrite them.
    """

    def __init__(self, folder: Path, every: float = 1.0) -> None:
        self._file = folder / "progress.json"
        self._every = every
        self._last_write = -every
        self._last_validation: Mapping[str, object] = {}
        self._times: dict[str, object] = {}

    def read(self) -> ProgressReport:
        """Read the last report of any process; an empty report if none was written."""
        return try_read_json(self._file, ProgressReport) or ProgressReport()

    def __call__(self, facts: object) -> None:
        """Write a report: a mapping, or an object with fields, of JSON values.

        Raises:
            LeaseHeldError: another worker has taken the folder over. The check is here because
                every thread that trains reports its progress.
        """
        report = dict(facts if isinstance(facts, Mapping) else vars(facts))
        if report.get("type") == "validation":
            self._last_validation = {"validation": report}
        self._times |= {name: report[name] for name in ("seconds", "cpu_seconds") if name in report}
        if time.monotonic() - self._last_write >= self._every:
            check_lease(self._file.parent)
            self._last_write = time.monotonic()
            # Not synced, unlike all other files: a lost report only delays the display.
            part = self._file.with_suffix(".part")
            with suppress(OSError):
                part.write_text(json.dumps({**self._times, **report, **self._last_validation},
                                           default=str), "utf-8")
                os.replace(part, self._file)
