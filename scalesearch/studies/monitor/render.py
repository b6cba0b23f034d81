"""Terminal output of study snapshots: a screen, or plain lines."""

import time
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scalesearch.studies.forecast import Eta, RunningTrial
from scalesearch.studies.monitor.events import LoggedEvent
from scalesearch.studies.monitor.format import (
    describe_forecast_status,
    describe_gain,
    format_ago,
    format_duration,
    format_number,
    format_percent,
)
from scalesearch.studies.monitor.front import FrontHypervolume, FrontMember, FrontSnapshot
from scalesearch.studies.monitor.heartbeat import FINISHED, RUNNING, STOPPED, Owner
from scalesearch.studies.monitor.running import SILENT, RunningTeacher
from scalesearch.studies.monitor.snapshot import StudySnapshot
from scalesearch.studies.trials.trial import State
from scalesearch.training.effort import TRAINING_PARTS

WIDE_COLUMNS = 110  # minimum width with columns for architectures and machines
MIN_ROWS = 3  # rows of running trials that are shown in the smallest terminal
STATES = (State.COMPLETE, State.PENDING, State.PAUSED, State.FAILED, State.INFEASIBLE,
          State.DUPLICATE)
STATE_COLORS = {FINISHED: "green", STOPPED: "red"}


def render_snapshot(snapshot: StudySnapshot, width: int, height: int | None = None) -> Group:
    """Render a snapshot as a screen of ``width`` columns.

    If ``height`` is given, the table of running trials has only the rows that fit, and long lines
    are cut.
    """
    whole = height is None
    parts: list[RenderableType] = [
        _line(f"{snapshot.study} · {snapshot.folder}", "bold", whole),
        _line(describe_owner(snapshot.owner), STATE_COLORS.get(snapshot.owner.state, ""), whole),
        _bar(snapshot, width), *(_line(text, whole=whole) for text in _counts(snapshot))]
    if snapshot.teacher:
        parts.append(_line(describe_teacher(snapshot.teacher)))
    below: list[RenderableType] = [*_forecast(snapshot, whole), *_rungs(snapshot),
                                   *_front(snapshot.front, snapshot.time), *_gain(snapshot, whole),
                                   *_events(snapshot, whole)]
    used_height = sum(part.row_count + 3 if isinstance(part, Table) else 1
                      for part in (*parts, *below))
    room = len(snapshot.running) if height is None else max(MIN_ROWS, height - used_height - 5)
    return Group(*parts, *_training_table(snapshot, width, room), *below)


def describe_owner(owner: Owner) -> str:
    """Describe the process that runs the study: its last heartbeat, or how it ended."""
    process = f" on {owner.host}, process {owner.pid}" if owner.host else ""
    if owner.state == RUNNING:
        since = ("" if owner.started_at is None
                 else f", for {format_duration(time.time() - owner.started_at)}")
        heartbeat = owner.reason or f"last heartbeat {owner.heartbeat_age or 0:.0f} s ago"
        return f"running{process}{since}; {heartbeat}; {owner.executor}".removesuffix("; ")
    ended = f", {format_ago(time.time() - owner.ended_at)}" if owner.ended_at is not None else ""
    return f"{owner.state}{ended}: {owner.reason}"


def describe_time_left(eta: Eta) -> str:
    """Describe the remaining time."""
    if eta.seconds is None:
        return "time left unknown"
    seeds = (f", up to {format_duration(eta.front_seeds)} of it for further seeds"
             if eta.front_seeds >= 1 else "")
    return f"about {format_duration(eta.seconds)} left{seeds}"


def describe_teacher(teacher: RunningTeacher) -> str:
    """Describe the progress of the teacher."""
    return f"Teacher: {teacher.stage}, {teacher.status_text}"


def describe_hypervolume(volume: FrontHypervolume, now: float) -> str:
    """Describe the hypervolume and its latest change.

    ``now`` is in seconds since the epoch.
    """
    before = volume.value - volume.gain
    growth = (f", {format_percent(volume.gain / before, 2, '+')}"
              if before > 0 and 0 < volume.gain < 10 * before else "")
    ago = "" if volume.ended_at is None else f", {format_ago(now - volume.ended_at)}"
    return (f"Hypervolume {volume.value:.5g}; latest change {volume.gain:+.3g}{growth} with trial "
            f"{volume.trial}{ago}")


def _count(runs: float) -> str:
    """Format a number of full-budget runs, with one decimal if it is not an integer."""
    return f"{runs:,.1f}".removesuffix(".0")


def _line(text: str, style: str = "", whole: bool = False) -> Text:
    """One line of text, cut to the width of the screen unless ``whole``."""
    return Text(text, style=style, no_wrap=not whole, overflow="fold" if whole else "ellipsis")


def _bar(snapshot: StudySnapshot, width: int) -> Table:
    progress = snapshot.progress
    bar = Table.grid(padding=(0, 1))
    left = f" · {describe_time_left(snapshot.eta)}" if snapshot.owner.state == RUNNING else ""
    words = (f"{format_percent(progress.share)} · {_count(progress.done)} of "
             f"{_count(progress.total)} runs{left}")
    bar.add_row(ProgressBar(100, 100 * progress.share,
                            width=max(10, min(40, width - len(words) - 2))), words)
    return bar


def _counts(snapshot: StudySnapshot) -> list[str]:
    """Lines with finished and planned runs, and the number of candidates per state."""
    progress = snapshot.progress
    fixed = "architectures" if _has_only_fixed_architectures(snapshot) else "references"
    parts = [f"{_count(done)} of {_count(total)} {name}" for name, (done, total) in (
        ("candidates", progress.candidates), (fixed, progress.references),
        (f"further seeds of {fixed}", progress.reference_seeds)) if total]
    if any(progress.front_seeds):
        parts.append(f"{progress.front_seeds[0]} of at most {progress.front_seeds[1]} further "
                     "seeds for the front")
    words = {State.PENDING: "in training" if snapshot.owner.state == RUNNING else "interrupted"}
    states = [f"{snapshot.counts[state]:,} {words.get(state, state)}"
              for state in STATES if snapshot.counts[state]]
    return [" · ".join(line) for line in (parts, states) if line]


def _has_only_fixed_architectures(snapshot: StudySnapshot) -> bool:
    """Whether the study trains only architectures that its file names."""
    return not snapshot.progress.candidates[1]


def _training_table(snapshot: StudySnapshot, width: int, room: int) -> Iterable[RenderableType]:
    if not snapshot.running:
        return
    wide = width >= WIDE_COLUMNS
    table = _table("In training" if snapshot.owner.state == RUNNING else "Interrupted")
    for heading in ("trial", *(("architecture",) if wide else ()), "params", "MACs", "done", "step",
                    "loss", "val loss", *(("to rung",) if snapshot.rungs else ()), "left",
                    "try", *(("worker",) if wide else ())):
        table.add_column(heading,
                         justify="left" if heading in ("trial", "architecture", "worker")
                         else "right", no_wrap=True, overflow="ellipsis")
    for trial in snapshot.running[:room]:
        cells = _cells(trial, wide, bool(snapshot.rungs), _has_only_fixed_architectures(snapshot))
        table.add_row(*cells, style="red" if trial.status == SILENT else "")
    yield Text()
    yield table
    if len(snapshot.running) > room:
        yield _line(f"… and {len(snapshot.running) - room} more", "dim")
    for trial in snapshot.running[:room]:
        if trial.status == SILENT:
            yield _line(f"trial {trial.trial}: {trial.status_text}", "red")


def _cells(trial: RunningTrial, wide: bool, has_rungs: bool, only_fixed: bool) -> list[str]:
    plain_types = ("candidate", "replicate", *(("reference",) if only_fixed else ()))
    name = trial.name if trial.type in plain_types else f"{trial.name} ({trial.type})"
    step = ("" if trial.step is None
            else f"{trial.step:,}" + (f" of {trial.steps:,}" if trial.steps else ""))
    left = (trial.status if trial.seconds_left is None or trial.status != "training"
            else format_duration(trial.seconds_left))
    costs = ["" if cost is None else format_number(cost) for cost in (trial.params, trial.macs)]
    worker = f"{trial.host}, process {trial.pid}" if trial.host else ""
    return [name, *([trial.architecture or ""] if wide else []), *costs,
            format_percent(trial.trained_share), step, _loss(trial.loss),
            _loss(trial.validation_loss),
            *(["end" if trial.rung is None else str(trial.rung)] if has_rungs else []), left,
            str(trial.attempt), *([worker] if wide else [])]


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _rungs(snapshot: StudySnapshot) -> Iterable[RenderableType]:
    if not snapshot.rungs:
        return
    paused = "paused" if snapshot.owner.state == RUNNING else "stopped"
    has_correlation = any(rung.rank_correlation is not None for rung in snapshot.rungs)
    table = _table("Rungs", ("rung", "share", "reached", "promoted", paused, "failed", "best loss",
                             *(["rank correlation"] if has_correlation else [])))
    for number, rung in enumerate(snapshot.rungs, 1):
        last = number == len(snapshot.rungs)
        counts = [""] * 3 if last else [str(rung.promoted), str(rung.paused), str(rung.failed)]
        table.add_row("end" if last else str(number), f"{rung.share:.3g}", str(rung.reached),
                      *counts, _loss(rung.best_loss),
                      *([f"{rung.rank_correlation:+.2f}"] if rung.rank_correlation is not None
                        else []))
    yield Text()
    yield table


def _forecast(snapshot: StudySnapshot, whole: bool) -> Iterable[RenderableType]:
    """One line about the forecast, and on a whole screen a table of its parts."""
    status = snapshot.forecast_status
    if status is None:
        return
    yield _line(describe_forecast_status(status))
    if not whole:
        return
    table = _table("CPU time", ("part", "forecast", "so far", "expected"))
    for part in TRAINING_PARTS:
        efforts = (status.forecast.efforts, status.spent, status.expected)
        table.add_row(part, *(format_duration(effort[part].cpu_seconds) for effort in efforts))
    wall_times = (status.forecast.wall_seconds, status.wall_seconds, status.expected_wall_seconds)
    table.add_row("wall-clock time", *(format_duration(seconds) for seconds in wall_times))
    yield Text()
    yield table
    yield _line(f"Forecast {format_duration(status.forecast.cpu_seconds_low)} to "
                f"{format_duration(status.forecast.cpu_seconds_high)}, based on "
                f"{status.forecast.basis}", "dim", whole)


def _front(front: FrontSnapshot, now: float) -> Iterable[RenderableType]:
    if not front.members:
        yield _line("No finished trials.", "dim")
        return
    more = f", {len(front.members)} of them" if front.size > len(front.members) else ""
    title = (f"Front so far: {front.size}{more}" if front.size
             else f"References so far, by {front.main_objective}")
    table = _table(title, ("trial", *front.objectives))
    for member in front.members:
        table.add_row(_name(member),
                      *(format_number(member.values[name]) for name in front.objectives))
    yield Text()
    yield table
    if front.hypervolume:
        yield _line(describe_hypervolume(front.hypervolume, now))


def _gain(snapshot: StudySnapshot, whole: bool) -> Iterable[RenderableType]:
    if snapshot.expected_gain:
        words = describe_gain(snapshot.expected_gain)
        yield _line(words[0].upper() + words[1:], whole=whole)


def _name(member: FrontMember) -> str:
    seeds = f" ({member.seeds} seeds)" if member.seeds > 1 else ""
    return f"{member.trial} {member.label}{seeds}" if member.label else f"{member.trial}{seeds}"


def _events(snapshot: StudySnapshot, whole: bool) -> Iterable[RenderableType]:
    if snapshot.events:
        yield Text()
    for event in snapshot.events:
        yield _line(str(event), "dim", whole)
    if snapshot.problem:
        yield _line(snapshot.problem, "red", whole)


def _table(title: str, headings: Iterable[str] = ()) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None,
                  header_style="dim", padding=(0, 1))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table


class ChangePrinter:
    """Prints the changes between snapshots, one line each; at first the whole state."""

    def __init__(self) -> None:
        self._last_event = -1
        self._state: dict[str, str] = {}

    def lines(self, snapshot: StudySnapshot, events: Iterable[LoggedEvent] = ()) -> list[str]:
        """Return the lines to print for ``snapshot``.

        Args:
            events: all events that are kept; those that were printed before are skipped.
        """
        first = not self._state
        new_events = [event for event in (snapshot.events if first else events)
                      if event.number > self._last_event]
        lines = [f"{snapshot.study} · {snapshot.folder}", *_counts(snapshot)] if first else []
        lines += [str(event) for event in new_events] + self._changes(snapshot)
        if (first or new_events) and snapshot.owner.state == RUNNING:
            lines.append(f"{_count(snapshot.progress.done)} of {_count(snapshot.progress.total)} "
                         f"runs, {describe_time_left(snapshot.eta)}")
        self._last_event = max([self._last_event, *(event.number for event in new_events)])
        return lines

    def _changes(self, snapshot: StudySnapshot) -> list[str]:
        """Describe changes of the teacher, the log and the owner."""
        owner = snapshot.owner
        teacher = snapshot.teacher
        # A missing heartbeat is reported once, so its duration is not part of the state.
        state = {"teacher": teacher.stage if teacher else "", "problem": snapshot.problem,
                 "owner": f"{owner.state} {owner.reason.partition(' for ')[0]}"}
        words = {"teacher": describe_teacher(teacher) if teacher else "",
                 "problem": snapshot.problem, "owner": describe_owner(owner)}
        changes = [words[key] for key in state
                   if state[key] != self._state.get(key) and words[key]]
        self._state = state
        return changes

    def end(self, snapshot: StudySnapshot) -> list[str]:
        """Return the lines about the best candidates, once the study has ended."""
        members = [f"trial {_name(member)}: "
                   + ", ".join(f"{name} {format_number(value)}"
                               for name, value in member.values.items())
                   for member in snapshot.front.members]
        title = (f"Front: {snapshot.front.size}" if snapshot.front.size
                 else f"References: {len(members)}")
        volume = ([describe_hypervolume(snapshot.front.hypervolume, snapshot.time)]
                  if snapshot.front.hypervolume else [])
        return [title, *members, *volume] if members else []
