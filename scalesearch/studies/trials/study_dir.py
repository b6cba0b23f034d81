"""Folder of a study, from which everything else can be recomputed.

::

    runs/edge/
      study.json        facts of the study: objectives, protocol, space hash, recipe, data,
                        versions; only `seeds` may change later
      study.yaml        the study file, without passwords
      space.yaml        the space in canonical form
      command.json      name of the study file, changed options, working directory
      events.jsonl      all events, synced before they have any effect
      forecast.json     forecast of its duration at the start, and when trials are added
      gain.json         expected growth of the hypervolume, after the latest finished trial
      owner.json        process that runs it, with a heartbeat, and how it ended; for monitors
      optuna.journal    copy for Optuna dashboards; may be deleted
      teacher/          training run of the teacher; under corpus/, its translations
      trials/0007-3f…/  architecture.yaml  job.json  checkpoint…  result.json  record.json
      front.csv  all.csv  seeds.csv  bleu-vs-params.svg …
"""

import os
import platform
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout

from scalesearch.errors import UserError, option
from scalesearch.files import (
    DiskFullError,
    make_folder,
    read_json,
    remove_partial_files,
    write_json,
    write_text,
)
from scalesearch.studies.trials.event_log import EventLog
from scalesearch.studies.trials.record import SCORE_NAMES, Record
from scalesearch.studies.trials.study_meta import StudyMeta
from scalesearch.studies.trials.trial import EventType, State, Trial, TrialEvent
from scalesearch.studies.trials.trials import Trials
from scalesearch.terminal import format_count

# Files that only the driver writes; workers write the others in the folder of a trial.
DRIVER_FILES = (".owner", "architecture.yaml", "command.json", "forecast.json", "gain.json",
                 "job.json", "owner.json", "record.json", "space.yaml",
                 "study.json", "study.yaml", "warm.json")


def resume_hint() -> str:
    """Return how to continue an interrupted study."""
    return f"Finished trials are saved. Resume with the same command and {option('resume')}"

# Fields of a trial that its record and the event log must both have, by the key of the record.
LOGGED_RECORD_KEYS = {"number": "trial"} | {
    name: name for name in ("state", "origin", "label", "architecture", "params", "recipe_params",
                            "config", "values", "costs")}


class StudyDir:
    """Reader and writer of a study folder.

    Only the process inside :meth:`exclusive` may write.

    Attributes:
        meta: facts of the study, after it was read or created.
        log: event log.
        trials: trials after the events of :meth:`load` and :meth:`append`.
        teacher_fields: fields of records that differ from those of :attr:`StudyMeta.record_fields`
            after the teacher was trained: its facts, and the data with its translations.
    """

    meta: StudyMeta

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = EventLog(folder / "events.jsonl")
        self.trials = Trials()
        self.teacher_fields: Mapping[str, Any] = {}

    def exists(self) -> bool:
        """Whether the folder contains a study."""
        return (self.folder / "study.json").is_file()

    def has_started(self) -> bool:
        """Whether there is anything to resume: an event, a trial, or a run of the teacher."""
        has_events = self.log.file.exists() and self.log.file.stat().st_size > 0
        return self.exists() and (has_events or (self.folder / "teacher").is_dir()
                                  or (self.folder / "trials").is_dir())

    def create(self, meta: StudyMeta, space: str) -> None:
        """Create a study; ``study.json`` is written last, as the mark of a complete start."""
        write_text(self.folder / "space.yaml", space)
        self._write(meta)

    def update_meta(self, **changed: Any) -> None:
        """Change some keys of ``study.json``."""
        self._write(replace(self.meta, **changed))

    def _write(self, meta: StudyMeta) -> None:
        self.meta = meta
        write_json(self.folder / "study.json", meta.encode())

    def load(self) -> "StudyDir":
        """Read facts and events of the study, without any change.

        Raises:
            UserError: the study is missing or has another format, or its log is damaged.
        """
        self.read_meta()
        self.trials = Trials()
        for line in self.log.lines():
            self.read_event(line)
        return self

    def read_event(self, line: bytes) -> tuple[TrialEvent, Trial]:
        """Apply the next line of the log. Raises UserError if it is damaged."""
        number = self.trials.events + 1
        event = self.log.read(line, number)
        try:
            return event, self.trials.apply(event)
        except ValueError as error:
            raise self.log.damaged_line_error(number, error) from None

    def read_meta(self) -> "StudyDir":
        """Read only the facts of the study.

        Raises:
            UserError: the study is missing, damaged, or has another format.
        """
        if not self.exists():
            raise UserError(f"{self.folder} does not contain a study (study.json is missing); "
                            "start one with `scalesearch study run STUDY.yaml`", code="no-study")
        try:
            self.meta = StudyMeta.decode((self.folder / "study.json").read_bytes())
        except UserError as error:
            raise UserError(f"{self.folder}: {error}", code=error.code) from None
        return self

    def check_complete(self) -> None:
        """Check that the log has every trial with a record. Raises UserError if it was cut."""
        logged = {trial.folder for trial in self.trials}
        unknown = sorted(file.parent.name for file in self.folder.glob("trials/*/record.json")
                         if file.parent.name not in logged)
        if unknown:
            raise self.log.damaged_error(": the end is missing: the log lacks "
                                         f"{format_count(len(unknown), 'trial')} with a record, "
                                         f"such as {unknown[0]}")

    def append(self, event_type: EventType, trial: int, **facts: Any) -> Trial:
        """Append an event and return the trial after it, see :meth:`EventLog.append`."""
        return self.trials.apply(self.log.append(event_type, trial, **facts))

    def propose(self, trial: Trial) -> Trial:
        """Append a new trial."""
        facts = msgspec.to_builtins(trial)
        del facts["trial"]
        return self.append(EventType.PROPOSED, trial.number, **facts)

    @property
    def record_fields(self) -> dict[str, Any]:
        """Facts of the study in every record."""
        return {**self.meta.record_fields, **self.teacher_fields}

    def trial_folder(self, trial: Trial) -> Path:
        """Return the folder of a trial."""
        return self.folder / "trials" / trial.folder

    def record(self, trial: Trial) -> Record | None:
        """Return the record of a finished trial; None if it is missing or damaged.

        A record is damaged if it differs from the event log.
        """
        try:
            record: Any = read_json(self.trial_folder(trial) / "record.json", dict)
            msgspec.convert(record, Record)
            scores = {name: score
                      for name, score in (record.get("metrics") or {}).items()
                      if name in SCORE_NAMES}
            msgspec.convert(scores, dict[str, float | None])
            if any(record.get(key) != getattr(trial, name)
                   for name, key in LOGGED_RECORD_KEYS.items()):
                return None
        except (OSError, UserError, ValueError):  # OSError: missing, or not a regular file
            return None
        complete: Record = record
        return complete

    def table_rows(self, numbers: Container[int] | None = None) -> list[dict[str, Any]]:
        """Return table rows of all trials, or of those in ``numbers``.

        A row is the record of a finished trial, or the JSON of another one.
        """
        ended = (State.COMPLETE, State.FAILED)
        rows: list[Any] = [
            (self.record(trial) if trial.state in ended else None) or msgspec.to_builtins(trial)
            for trial in self.trials if numbers is None or trial.number in numbers]
        return rows if self.meta.rungs.n_pauses else [{**row, "rungs": None} for row in rows]

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Context in which this process is the only owner of the study.

        Raises:
            UserError: another process runs it, or the folder cannot be written.
        """
        lock = FileLock(self.folder / ".owner.lock")
        note = self.folder / ".owner"
        try:
            make_folder(self.folder)
            lock.acquire(timeout=0)
        except Timeout:
            owner = note.read_text("utf-8",
                                   errors="replace") if note.is_file() else "another process"
            raise UserError(f"{self.folder}: {owner} is already running this study",
                            code="study-running") from None
        except OSError as error:
            parent = next(path for path in self.folder.absolute().parents if path.exists())
            problem = ("cannot be written" if self.folder.is_dir()
                       else f"the folder cannot be created in {parent}")
            raise UserError(f"{self.folder}: {problem} ({error.strerror}); choose another "
                            f"{option('out')}", code="cannot-write") from None
        try:
            for folder in (self.folder, *self.folder.glob("trials/*")):
                remove_partial_files(folder, lambda name: name in DRIVER_FILES)
            write_text(note, f"process {os.getpid()} on {platform.node()}")
            yield
        finally:
            lock.release()


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Context in which errors of the disk become errors that describe how to resume.

    Raises:
        DiskFullError: the disk is full.
        UserError: the disk failed.
    """
    try:
        yield
    except DiskFullError as full:
        text = str(full)
        raise DiskFullError(text if "--resume" in text
                            else f"{text} with --resume: finished trials are saved") from full
    except (ConnectionError, BrokenPipeError, TimeoutError):
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise UserError(f"{folder}: the study cannot continue: {where}{error.strerror or error}. "
                        f"{resume_hint()}", code="disk-error") from error
