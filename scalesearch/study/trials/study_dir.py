"""Folder of a study: the truth, from which everything else can be made again.

::

    runs/edge/
      study.json        what the study is: objectives, protocol, space hash, recipe, data, versions; only `seeds`
                        may change later
      study.yaml        the study file as it was run, without passwords        space.yaml   the space, in canonical form
      command.json      which file that was, what options changed in it, and where it was run
      events.jsonl      every event, appended and synced before anything acts on it
      forecast.json     what it was expected to take when it began, or when more was asked of it
      gain.json         what further trainings are expected to bring, as of the latest that ended
      owner.json        who runs it, with a sign of life, and how it ended; for whoever watches
      optuna.journal    Optuna's copy, for dashboards; may be deleted
      teacher/          its training, and under corpus/ its translations, where candidates have one
      trials/0007-3f…/  architecture.yaml  job.json  checkpoint…  result.json  record.json
      front.csv  all.csv  seeds.csv  bleu-vs-params.svg …
"""

import os
import platform
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout

from scalesearch.errors import UserError
from scalesearch.files import DiskFullError, make_folder, read_json, remove_partial_files, write_json, write_text
from scalesearch.study.config.storage_url import mask_passwords
from scalesearch.study.trials.event_log import EventLog
from scalesearch.study.trials.record import SCORE_NAMES, Record
from scalesearch.study.trials.study_meta import StudyMeta
from scalesearch.study.trials.trial import EventType, State, Trial, TrialEvent
from scalesearch.study.trials.trials import Trials

# Files that the driver alone writes; the others of a trial's folder are its worker's.
DRIVER_FILES = (".owner", "architecture.yaml", "command.json", "forecast.json", "gain.json",
                 "job.json", "owner.json", "record.json", "space.yaml",
                 "study.json", "study.yaml", "warm.json")
RESUME_HINT = "What finished is safe; go on with the same command and --resume"


class StudyDir:
    """Reads and writes one study's folder. Only the process that holds :meth:`owned` may write.

    Attributes:
        log: its events. trials: as they were folded by :meth:`load` and :meth:`append`.
    """

    meta: StudyMeta  # once looked at, or created

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = EventLog(folder / "events.jsonl")
        self.trials = Trials()

    def exists(self) -> bool:
        """Whether there is a study here."""
        return (self.folder / "study.json").is_file()

    def has_started(self) -> bool:
        """Whether anything has happened in it yet.

        A start that was refused leaves nothing to resume.
        """
        happened = self.log.file.exists() and self.log.file.stat().st_size > 0
        return self.exists() and (happened or (self.folder / "teacher").is_dir())

    def create(self, meta: StudyMeta, study: str, space: str) -> None:
        """Starts a study: ``meta`` last, so that a folder without it was never started."""
        write_text(self.folder / "study.yaml", mask_passwords(study))
        write_text(self.folder / "space.yaml", space)
        self._write(meta)

    def update_meta(self, **changed: Any) -> None:
        """Has ``study.json`` say something else of some keys."""
        self._write(replace(self.meta, **changed))

    def _write(self, meta: StudyMeta) -> None:
        self.meta = meta
        write_json(self.folder / "study.json", meta.to_json())

    def load(self) -> "StudyDir":
        """Reads what is there, without changing anything.

        Raises:
            UserError: no study is here, it is of another format, or its log is damaged before its
                end.
        """
        self.read_meta()
        self.trials = Trials()
        for line in self.log.iterate_lines():
            self.read_event(line)
        return self

    def read_event(self, line: bytes) -> tuple[TrialEvent, Trial]:
        """Takes in the next line of the log. Raises UserError where it is damaged."""
        number = self.trials.events + 1
        event = self.log.read(line, number)
        try:
            return event, self.trials.apply(event)
        except ValueError as error:
            raise self.log.damaged_line_error(number, error) from None

    def read_meta(self) -> "StudyDir":
        """Reads what the study is, and nothing of what has happened in it.

        Raises:
            UserError: no study is here, it is damaged, or of another format.
        """
        if not self.exists():
            raise UserError(f"{self.folder}: there is no study here (no study.json); start one "
                            "with `scalesearch study run STUDY.yaml`", code="no-study")
        try:
            self.meta = StudyMeta.from_json((self.folder / "study.json").read_bytes())
        except UserError as error:
            raise UserError(f"{self.folder}: {error}", code=error.code) from None
        return self

    def append(self, event_type: EventType, trial: int, **facts: Any) -> Trial:
        """Writes one event, synced to the disk; returns the trial after it.

        See :meth:`EventLog.append`.
        """
        return self.trials.apply(self.log.append(event_type, trial, **facts))

    def propose(self, trial: Trial) -> Trial:
        """Announces a new trial."""
        facts = trial.to_json()
        return self.append(EventType.PROPOSED, facts.pop("trial"), **facts)

    def trial_folder(self, trial: Trial) -> Path:
        """Folder of one trained trial."""
        return self.folder / "trials" / trial.folder

    def record(self, trial: Trial) -> Record | None:
        """The record of a finished trial; None where it has none, or its file is damaged."""
        try:
            record = read_json(self.trial_folder(trial) / "record.json", dict)
            msgspec.convert(record, Record)
            scores = {name: score
                      for name, score in (record.get("metrics") or {}).items()
                      if name in SCORE_NAMES}
            msgspec.convert(scores, dict[str, float | None])
        except (FileNotFoundError, UserError, ValueError):
            return None
        return record

    def table_rows(self, numbers: Container[int] | None = None) -> list[dict[str, Any]]:
        """Rows for tables of all trials, or those of ``numbers``: records of ended ones, else the trials' JSON."""
        ended = (State.COMPLETE, State.FAILED)
        rows = [(self.record(trial) if trial.state in ended else None) or trial.to_json()
                for trial in self.trials if numbers is None or trial.number in numbers]
        return rows if self.meta.rungs.n_pauses else [{**row, "rungs": None} for row in rows]

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Makes this process the study's only owner while inside.

        Raises:
            UserError: another process owns it, or the folder cannot be written.
        """
        lock = FileLock(self.folder / ".owner.lock")
        note = self.folder / ".owner"
        try:
            make_folder(self.folder)
            lock.acquire(timeout=0)
        except Timeout:
            owner = note.read_text() if note.is_file() else "another process"
            raise UserError(f"{self.folder}: {owner} is running this study; only one may at a time",
                            code="study-running") from None
        except OSError as error:
            raise UserError(f"{self.folder}: cannot be written ({error.strerror}); choose another "
                            "--out", code="cannot-write") from None
        try:
            for folder in (self.folder, *self.folder.glob("trials/*")):
                remove_partial_files(folder, lambda name: name in DRIVER_FILES)
            write_text(note, f"process {os.getpid()} on {platform.node()}")
            yield
        finally:
            lock.release()


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """A stretch of the study in ``folder`` that its disk may cut off; the error says how to go on.

    Raises:
        DiskFull: there is no room.
        UserError: the disk fails otherwise.
    """
    try:
        yield
    except DiskFullError as full:
        text = str(full)
        raise DiskFullError(text if "--resume" in text
                            else f"{text} with --resume: what finished is safe") from full
    except (ConnectionError, BrokenPipeError, TimeoutError):
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise UserError(f"{folder}: the study cannot go on: {where}{error.strerror or error}. "
                        f"{RESUME_HINT}", code="disk-error") from error
