"""Repair of a damaged study: what is whole is copied into another folder, and the original is only read.

An event is whole where its checksum is right. Events are put into the order of their numbers, each
once. A finished trial whose events are lost is made again from its record, and a lost record from
what training left.
"""

import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from scalesearch.errors import UserError
from scalesearch.files import try_read_json, write_json
from scalesearch.study.trials.event_log import EventLog, decode_event, encode_event
from scalesearch.study.trials.record import make_record
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import EventType, Origin, State, Trial, TrialEvent
from scalesearch.study.trials.trials import Trials
from scalesearch.train.result import RESULT_FILE, Result

IGNORED_PATTERNS = ("events.*", "owner.json", ".*", "optuna.journal*", "lease.json",
                    "progress.json")
ENDED_STATES = (State.COMPLETE, State.FAILED)


@dataclass(frozen=True)
class RepairReport:
    """Outcome of a repair: events ``kept_events``, and in words what was ``lost`` and what was ``saved`` otherwise."""

    folder: str
    kept_events: int
    lost: tuple[str, ...]
    saved: tuple[str, ...]


def repair(folder: Path, to: Path) -> RepairReport:
    """Copies what is whole of the study in ``folder`` to ``to``, which is made.

    Raises:
        UserError: ``to`` is there already, or ``study.json`` itself is missing, damaged or of
            another format.
    """
    old = StudyDir(folder).read_meta()
    if to.exists():
        raise UserError(f"{to} is there already; choose another folder with --to",
                        code="already-exists")
    lines, lost = _valid_lines(old.log)
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns(*IGNORED_PATTERNS))
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
    # A finished replicate stays, whatever became of the trial that it repeats; another could not be
    # trained any more.
    orphans = {one.number
               for one in new.trials
               if one.original is not None and new.trials.get(one.original) is None
               and (one.state == State.DUPLICATE
                    or (one.origin == Origin.REPLICATE and one.state not in ENDED_STATES))}
    events = [line for line in events if decode_event(line).trial not in orphans]
    lost += [f"trial {number}: the trial that it repeats is lost" for number in sorted(orphans)]
    new.log.file.write_bytes(b"".join(_numbered(line, number)
                                      for number, line in enumerate(events, 1)))
    _restore_records(new, saved)
    new.load()
    return RepairReport(str(to), len(lines), tuple(lost), tuple(saved))


def _valid_lines(log: EventLog) -> tuple[list[tuple[int, bytes]], list[str]]:
    """Lines with a right checksum, in the order of their numbers, each with its place; and what was lost."""
    events: dict[int, tuple[int, bytes]] = {}
    lost = []
    for place, line in enumerate(log.lines(), 1):
        try:
            number = decode_event(line).line
        except ValueError as error:
            lost.append(f"events.jsonl:{place}: {error}")
            continue
        if number in events:
            lost.append(f"events.jsonl:{place}: event {number} is there already")
        else:
            events[number] = place, line
    missing = set(range(1, max(events, default=0) + 1)) - set(events)
    lost += [f"events.jsonl: event {number} is missing" for number in sorted(missing)]
    return [events[number] for number in sorted(events)], lost


def _events_from_records(study: StudyDir, saved: list[str]) -> list[bytes]:
    """Events of finished trials whose own are lost; ``study.trials`` takes them in."""
    events = []
    for file in sorted(study.folder.glob("trials/*/record.json")):
        trial = _recorded(file)
        known = study.trials.get(trial.number) if trial else None
        if trial is None or (known and known.state in ENDED_STATES):
            continue
        if known is None:
            facts = {"type": EventType.PROPOSED, **trial.to_json()}
        else:
            facts = {"type": EventType.ENDED, "trial": trial.number, "state": trial.state,
                     "values": trial.values, "reason": trial.reason,
                     "wall_seconds": trial.wall_seconds,
                     "efforts": msgspec.to_builtins(trial.efforts)}
        written = datetime.fromtimestamp(file.stat().st_mtime,
                                         UTC).isoformat(timespec="milliseconds")
        # records are written as a trial ends
        line = encode_event({"line": 1, "time": trial.ended_at or written, **facts})
        study.trials.apply(TrialEvent.from_json(line))
        events.append(line)
        saved.append(f"trial {trial.number}, {trial.state}: from its record")
    return events


def _recorded(file: Path) -> Trial | None:
    """The trial of a record; None where it is damaged, or lies in another trial's folder."""
    record = try_read_json(file, dict)
    try:
        trial = Trial.from_json(record or {})
    except ValueError:
        return None
    if trial.origin != Origin.REPLICATE:
        trial = replace(trial, seed=None)  # a record names the study's
    return trial if trial.folder == file.parent.name and trial.state in ENDED_STATES else None


def _numbered(line: bytes, number: int) -> bytes:
    event = msgspec.json.decode(line)
    del event["crc"]
    return encode_event({**event, "line": number})


def _restore_records(study: StudyDir, saved: list[str]) -> None:
    """Makes records that are missing or damaged again, where the result is whole."""
    trials: Trials = study.trials
    for trial in trials.with_state(*ENDED_STATES):
        result = try_read_json(study.trial_folder(trial) / RESULT_FILE, Result)
        if study.record(trial) is None and result is not None:
            write_json(study.trial_folder(trial) / "record.json",
                       make_record(trial, study.meta.record_fields, result))
            saved.append(f"the record of trial {trial.number}: from what its training left")
