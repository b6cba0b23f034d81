"""Repair of a damaged study: valid files and events are copied to another folder.

The damaged study is not changed. Events are valid if their checksum is correct; they are sorted by
number, without duplicates. The events of a finished trial are restored from its record if they are
lost, and a lost record is restored from the training result.
"""

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from scalesearch.errors import UserError, option
from scalesearch.files import copy_files, try_read_json, write_json
from scalesearch.studies.trials.event_log import EventLog, decode_event, encode_event
from scalesearch.studies.trials.record import make_record
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import EventType, Origin, State, Trial, parse_event
from scalesearch.training.result import RESULT_FILE, Result

IGNORED_PATTERNS = "events.*", "owner.json", ".*", "optuna.journal*", "lease.json", "progress.json"
ENDED_STATES = (State.COMPLETE, State.FAILED)


@dataclass(frozen=True)
class RepairReport:
    """Result of a repair.

    Attributes:
        folder: the new folder.
        kept_events: number of events that are valid.
        lost, saved: descriptions of lost and of restored data.
        left: files that could not be copied, such as pipes and unreadable files, with the reason.
    """

    folder: str
    kept_events: int
    lost: tuple[str, ...]
    saved: tuple[str, ...]
    left: tuple[str, ...]


def repair(folder: Path, to: Path) -> RepairReport:
    """Copy the valid parts of the study in ``folder`` to the new folder ``to``.

    Raises:
        UserError: ``to`` exists, or ``study.json`` is missing, damaged or has another format.
    """
    old = StudyDir(folder).read_meta()
    if to.exists():
        raise UserError(f"{to} exists; choose another folder with {option('to')}",
                        code="already-exists")
    lines, lost = _valid_lines(old.log)
    left = copy_files(folder, to, exclude=IGNORED_PATTERNS)
    new = StudyDir(to).read_meta()
    saved = list[str]()
    events: list[bytes] = []
    for number, line in lines:
        try:
            new.trials.apply(decode_event(line))
            events.append(line)
        except ValueError as error:
            lost.append(f"events.jsonl:{number}: {error}")
    events += _events_from_records(new, saved)
    # Duplicates and unfinished replicates need the trial that they repeat; finished replicates are
    # kept without it.
    orphans = {trial.number for trial in new.trials
               if trial.original is not None and new.trials.get(trial.original) is None
               and (trial.state == State.DUPLICATE
                    or (trial.origin == Origin.REPLICATE and trial.state not in ENDED_STATES))}
    events = [line for line in events if decode_event(line).trial not in orphans]
    lost += [f"trial {number}: the trial that it repeats is lost" for number in sorted(orphans)]
    numbered = []
    for number, line in enumerate(events, 1):
        event = msgspec.json.decode(line)
        del event["crc"]
        numbered.append(encode_event({**event, "line": number}))
    new.log.file.write_bytes(b"".join(numbered))
    for trial in new.trials.with_state(*ENDED_STATES):
        result = try_read_json(new.trial_folder(trial) / RESULT_FILE, Result)
        if new.record(trial) is None and result is not None:
            file = new.trial_folder(trial) / "record.json"
            if file.is_dir():
                shutil.rmtree(file)
            write_json(file, make_record(trial, new.record_fields, result))
            saved.append(f"the record of trial {trial.number}: from its training result")
    new.load()
    return RepairReport(str(to), len(lines), tuple(lost), tuple(saved), tuple(left))


def _valid_lines(log: EventLog) -> tuple[list[tuple[int, bytes]], list[str]]:
    """Return the valid lines with line numbers, sorted by event, and the losses."""
    events: dict[int, tuple[int, bytes]] = {}
    lost = []
    for line_number, line in enumerate(log.lines(), 1):
        try:
            number = decode_event(line).line
        except ValueError as error:
            lost.append(f"events.jsonl:{line_number}: {error}")
            continue
        if number in events:
            lost.append(f"events.jsonl:{line_number}: event {number} is a duplicate")
        else:
            events[number] = line_number, line
    missing = set(range(1, max(events, default=0) + 1)) - set(events)
    lost += [f"events.jsonl: event {number} is missing" for number in sorted(missing)]
    return [events[number] for number in sorted(events)], lost


def _events_from_records(study: StudyDir, saved: list[str]) -> list[bytes]:
    """Restore lost events of finished trials from records, and apply them."""
    events = []
    for file in sorted(study.folder.glob("trials/*/record.json")):
        try:
            trial = msgspec.convert(try_read_json(file, dict) or {}, Trial)
        except ValueError:
            continue
        if trial.origin != Origin.REPLICATE:
            trial = trial.replace(seed=None)  # the record contains the study's seed
        logged = study.trials.get(trial.number)
        is_recorded = trial.folder == file.parent.name and trial.state in ENDED_STATES
        if not is_recorded or (logged and logged.state in ENDED_STATES):
            continue
        if logged is None:
            facts = {"type": EventType.PROPOSED, **msgspec.to_builtins(trial)}
        else:
            facts = {"type": EventType.ENDED, "trial": trial.number, "state": trial.state,
                     "values": trial.values, "reason": trial.reason,
                     "wall_seconds": trial.wall_seconds,
                     "efforts": msgspec.to_builtins(trial.efforts), "phases": trial.phases}
        written = datetime.fromtimestamp(file.stat().st_mtime,
                                         UTC).isoformat(timespec="milliseconds")
        # A record is written when its trial ends.
        line = encode_event({"line": 1, "time": trial.ended_at or written, **facts})
        study.trials.apply(parse_event(line))
        events.append(line)
        saved.append(f"trial {trial.number}, {trial.state}: from its record")
    return events
