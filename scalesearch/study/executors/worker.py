"""Worker: builds, trains and scores the job of a folder. Knows nothing of Optuna or Ray.

::

    architecture.yaml   what to train            job.json     how: data, recipe, seed, threads
                                                              or who teaches: teacher, data, search
                                                                  or top, threads
    progress.json       how far it is (about once a second; may be lost)
    lease.json          which worker is at it, while one is; its sign of life
    result.json         what came of it; written last, whole or not at all
    rung-0.json         where it paused, in a study with rungs: the same, of a training that is to be gone on with
"""

import json
import os
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalesearch.files import replace_non_finite, try_read_json, write_json
from scalesearch.signals import deferred_signals, interrupt_on_signal
from scalesearch.study.executors.lease import HEARTBEAT_TIMING, HeartbeatTiming, LeaseHeldError, check_lease, hold_lease
from scalesearch.study.executors.shared_fs import not_shared_error
from scalesearch.study.trials.record import JobFile

RunJob = Callable[[Path, JobFile], Mapping[str, object]]
FILE_TIMEOUT = 5.0  # seconds until a file that the driver has written shows on another machine


def train_job(folder: str, team: Any = None) -> None:
    """Trains the trial in ``folder``, or resumes it. A finished one is left as it is.

    A job that names a ``teacher`` has it translate the training text instead, or soften its ``top``
    tokens.

    Args:
        team: processes that are running already and share the updates; without it, as many are
            started here as the
            job says.

    Raises:
        UserError: the architecture, the data or the recipe is wrong.
        Taken: another worker holds the folder.
    """
    def run(place: Path, job: JobFile) -> Mapping[str, object]:
        raise_niceness(job.get("nice", 0))
        _use_threads(job["threads"])
        return _distill(place, job) if "teachers" in job else _train(place, job, team)

    finish_job(Path(folder), run)


def _train(place: Path, job: JobFile, team: Any) -> Mapping[str, object]:
    from scalesearch.data import DataSpec, load_corpus
    from scalesearch.export.scoring import artifact_decoder, check_decoder
    from scalesearch.space import read_space
    from scalesearch.train import Recipe, train

    architecture = read_space(place / "architecture.yaml").single_architecture()
    corpus = load_corpus(DataSpec.from_mapping(job["data"]).with_vocab(architecture.vocab),
                         Path(job["cache"]))
    recipe = Recipe.from_mapping(job["recipe"])
    processes = job.get("processes", 1)
    check_decoder(recipe, architecture.block)
    if processes > 1:
        # of each, not of all together
        recipe = replace(recipe, threads=recipe.threads or job["threads"])
    result = train(architecture, corpus, recipe, place, seed=job["seed"],
                   report=ProgressFile(place), resume=True, until_share=job.get("until_share", 1.0),
                   processes=processes, team=team, with_proxies=job.get("proxies", False),
                   open_artifact=artifact_decoder)
    return result.to_json()


def _distill(place: Path, job: JobFile) -> Mapping[str, object]:
    """Has a teacher translate, or soften, the training text into ``place``; what earlier attempts have made stays."""
    from scalesearch.data import DataSpec
    from scalesearch.train.scoring.distill import write_distilled_data
    from scalesearch.train.scoring.evaluate import DecodingOptions
    from scalesearch.train.scoring.soft_targets import write_soft_targets

    progress = ProgressFile(place)
    kind = "soften_targets" if "top_k" in job else "decode"
    before = progress.read().cpu_seconds or 0.0
    start = time.process_time()

    def spent() -> dict[str, float]:
        return {"cpu_seconds": before + time.process_time() - start}

    with deferred_signals() as stop:
        def tell(done: int, total: int) -> None:
            progress({"type": kind, "done": done, "total": total, **spent()})
            stop.raise_if_requested()

        folders = [Path(one) for one in job["teachers"]]
        out = place / job["prefix"]
        data = DataSpec.from_mapping(job["data"])
        said = (write_soft_targets(folders, data, out, job["top_k"], tell, Path(job["cache"]))
                if "top_k" in job
                else write_distilled_data(folders, data, out, DecodingOptions(**job["decoding"]),
                                          tell))
    return {"state": "complete", **said, **spent()}


def finish_job(folder: Path, run: RunJob, timing: HeartbeatTiming = HEARTBEAT_TIMING) -> None:
    """Holds ``folder`` against other workers while ``run(folder, job)`` makes the result, then writes that.

    Raises:
        Interrupted: by Ctrl-C, SIGTERM, or Ray.
        Taken: another worker holds the folder, or has taken it over.
        NotShared: this machine does not see the folder.
    """
    _wait_for_file(folder / "job.json")
    with interrupt_on_signal(), hold_lease(folder, timing) as lease:
        job = json.loads((folder / "job.json").read_text())
        result = folder / "result.json"
        rung = folder / rung_file(job.get("rung", -1))
        if result.exists() or rung.exists():  # there is no rung -1: such a job goes to the end
            return
        made = replace_non_finite(_run_with_traceback(folder, job, run))
        if not lease.is_owned():
            raise LeaseHeldError(folder.name, was_taken_over=True)
        write_json(rung if made["state"] == "paused" else result, made)


def _wait_for_file(file: Path) -> None:
    """Waits a little for ``file``.

    The lock beside it would create the folder on a machine that has none.
    """
    until = time.monotonic() + FILE_TIMEOUT
    while not file.is_file():
        if time.monotonic() > until:
            raise not_shared_error(file)
        time.sleep(0.1)


def rung_file(rung: int) -> str:
    """Name of the file that a trial leaves at ``rung``, counted from 0."""
    return f"rung-{rung}.json"


def _run_with_traceback(folder: Path, job: JobFile, run: RunJob) -> Mapping[str, object]:
    """Runs ``run``; a fault leaves its traceback in ``crash.txt`` and is raised again."""
    try:
        return run(folder, job)
    except (KeyboardInterrupt, LeaseHeldError):
        raise
    except BaseException:
        with suppress(OSError):  # a full disk must not take the place of the fault itself
            (folder / "crash.txt").write_text(traceback.format_exc())
        raise


@dataclass(frozen=True)
class LastValidation:
    """The last validation of a training."""

    validation_loss: float | None = None


@dataclass(frozen=True)
class ProgressReport:
    """Report of a worker's progress; a training and a translation (``decode``) say different things.

    Attributes:
        share: done of a full training. done, of: sentences translated.
        seconds, cpu_seconds: of the updates so far.
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
    """Progress of a training, kept in ``progress.json``.

    It is written once in ``every`` seconds at most.

    The last validation is kept beside it, under ``validation``: the next update would take its
    place.
    """

    def __init__(self, folder: Path, every: float = 1.0) -> None:
        self._file = folder / "progress.json"
        self._every = every
        self._last = -every
        self._kept: Mapping[str, object] = {}

    def read(self) -> ProgressReport:
        """Reads the last report, of whichever process; an empty one where there is none."""
        return try_read_json(self._file, ProgressReport) or ProgressReport()

    def __call__(self, facts: Any) -> None:
        """Notes ``facts``: JSON values, or an object whose fields are.

        Raises:
            Taken: another worker has taken the folder over; that is how this one notices, in
                whatever thread it works.
        """
        note = dict(facts if isinstance(facts, Mapping) else vars(facts))
        if note.get("type") == "validation":
            self._kept = {"validation": note}
        if time.monotonic() - self._last >= self._every:
            check_lease(self._file.parent)
            self._last = time.monotonic()
            # Not synced, unlike everything that counts: losing it costs a moment of the display.
            part = self._file.with_suffix(".part")
            with suppress(OSError):
                part.write_text(json.dumps({**note, **self._kept}, default=str))
                os.replace(part, self._file)


def raise_niceness(nice: int) -> None:
    """Raises this process's niceness to ``nice``; only the superuser may lower it."""
    os.nice(max(0, nice - os.nice(0)))


def _use_threads(count: int) -> None:
    os.environ["OMP_NUM_THREADS"] = str(count)
    import torch

    torch.set_num_threads(count)
