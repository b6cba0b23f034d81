"""Draws what is shown of a watched study: a screen for terminals, plain lines elsewhere."""

import time
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scalesearch.study.monitor.eta import Eta
from scalesearch.study.monitor.events import LoggedEvent
from scalesearch.study.monitor.expected_gain import describe_gain
from scalesearch.study.monitor.forecast import describe_forecast_status
from scalesearch.study.monitor.format import format_ago, format_duration, format_number
from scalesearch.study.monitor.front import FrontHypervolume, FrontMember, FrontSnapshot
from scalesearch.study.monitor.heartbeat import FINISHED, RUNNING, STOPPED, Owner
from scalesearch.study.monitor.running import SILENT, RunningTeacher, RunningTrial
from scalesearch.study.monitor.snapshot import StudySnapshot
from scalesearch.study.trials.trial import State
from scalesearch.train.effort import TRAINING_PARTS

WIDE_COLUMNS = 110  # columns from which on architectures and machines are named, too
MIN_ROWS = 3  # rows of what is in training that are shown however low the terminal is
STATES = (State.COMPLETE, State.PENDING, State.PAUSED, State.FAILED, State.INFEASIBLE,
          State.DUPLICATE)
STATE_COLORS = {FINISHED: "green", STOPPED: "red"}


def render_snapshot(snapshot: StudySnapshot, width: int, height: int | None = None) -> Group:
    """The screen; what is in training is cut to what fits into ``height`` lines, without which nothing is cut short."""
    whole = height is None
    parts: list[RenderableType] = [
        _line(f"{snapshot.study} · {snapshot.folder}", "bold", whole),
        _line(describe_owner(snapshot.owner), STATE_COLORS.get(snapshot.owner.state, ""), whole),
        _bar(snapshot, width), *(_line(text, whole=whole) for text in _counts(snapshot))]
    if snapshot.teacher:
        parts.append(_line(describe_teacher(snapshot.teacher)))
    below: list[RenderableType] = [*_budget(snapshot, whole), *_rungs(snapshot),
                                   *_front(snapshot.front, snapshot.time), *_gain(snapshot, whole),
                                   *_events(snapshot, whole)]
    rest = sum(part.row_count + 3 if isinstance(part, Table) else 1 for part in (*parts, *below))
    room = len(snapshot.running) if height is None else max(MIN_ROWS, height - rest - 5)
    return Group(*parts, *_training_table(snapshot, width, room), *below)


def describe_owner(owner: Owner) -> str:
    """Describes the owner: its sign of life, or how it ended."""
    who = f" on {owner.host}, process {owner.pid}" if owner.host else ""
    if owner.state == RUNNING:
        since = ("" if owner.started_at is None
                 else f", for {format_duration(time.time() - owner.started_at)}")
        life = owner.reason or f"last sign of life {owner.heartbeat_age or 0:.0f} s ago"
        return f"running{who}{since}; {life}; {owner.executor}".removesuffix("; ")
    ended = f", {format_ago(time.time() - owner.ended_at)}" if owner.ended_at is not None else ""
    return f"{owner.state}{ended}: {owner.reason}"


def describe_time_left(eta: Eta) -> str:
    """The time that is left, in words."""
    if eta.seconds is None:
        return "time left unknown"
    seeds = (f", up to {format_duration(eta.front_seeds)} of it for further seeds"
             if eta.front_seeds >= 1 else "")
    return f"about {format_duration(eta.seconds)} left{seeds}"


def describe_teacher(teacher: RunningTeacher) -> str:
    """Describes the progress of the teacher."""
    return f"Teacher: {teacher.stage}, {teacher.status_text}"


def describe_hypervolume(volume: FrontHypervolume, now: float) -> str:
    """The hypervolume, and its latest change."""
    before = volume.value - volume.gain
    grown = f", {volume.gain / before:+.2%}" if before > 0 and 0 < volume.gain < 10 * before else ""
    when = "" if volume.ended_at is None else f", {format_ago(now - volume.ended_at)}"
    return (f"Hypervolume {volume.value:.5g}; latest change {volume.gain:+.3g}{grown} with trial "
            f"{volume.trial}{when}")


def _count(trainings: float) -> str:
    """Full trainings, with a tenth where one is under way."""
    return f"{trainings:,.1f}".removesuffix(".0")


def _line(text: str, style: str = "", whole: bool = False) -> Text:
    """One line, cut to the screen's width unless it is to be ``whole``."""
    return Text(text, style=style, no_wrap=not whole, overflow="fold" if whole else "ellipsis")


def _bar(shown: StudySnapshot, width: int) -> Table:
    done = shown.progress
    bar = Table.grid(padding=(0, 1))
    left = f" · {describe_time_left(shown.eta)}" if shown.owner.state == RUNNING else ""
    words = f"{done.share:.0%} · {_count(done.done)} of {_count(done.total)} trainings{left}"
    bar.add_row(ProgressBar(100, 100 * done.share, width=max(10, min(40, width - len(words) - 2))),
                words)
    return bar


def _counts(shown: StudySnapshot) -> list[str]:
    """Counts what is done of what is wanted, and candidates by state."""
    done = shown.progress
    named = "rows" if _has_only_fixed_architectures(shown) else "references"
    parts = [f"{_count(part)} of {_count(of)} {name}" for name, (part, of) in (
        ("candidates", done.candidates), (named, done.references),
        (f"{named}' further seeds", done.reference_seeds)) if of]
    if any(done.front_seeds):
        parts.append(f"{done.front_seeds[0]} of at most {done.front_seeds[1]} further seeds for "
                     "the front")
    words = {State.PENDING: "in training" if shown.owner.state == RUNNING else "interrupted"}
    counted = [f"{shown.counts[state]:,} {words.get(state, state)}"
               for state in STATES if shown.counts[state]]
    return [" · ".join(line) for line in (parts, counted) if line]


def _has_only_fixed_architectures(shown: StudySnapshot) -> bool:
    """Whether the study trains named architectures alone: its file's rows."""
    return not shown.progress.candidates[1]


def _training_table(shown: StudySnapshot, width: int, room: int) -> Iterable[RenderableType]:
    if not shown.running:
        return
    wide = width >= WIDE_COLUMNS
    table = _table("In training" if shown.owner.state == RUNNING else "Interrupted")
    for heading in ("trial", *(("architecture",) if wide else ()), "params", "MACs", "done", "step",
                    "loss", "valid", *(("to rung",) if shown.rungs else ()), "left", "try",
                    *(("worker",) if wide else ())):
        table.add_column(heading,
                         justify="left" if heading in ("trial", "architecture", "worker")
                         else "right", no_wrap=True, overflow="ellipsis")
    for one in shown.running[:room]:
        cells = _cells(one, wide, bool(shown.rungs), _has_only_fixed_architectures(shown))
        table.add_row(*cells, style="red" if one.status == SILENT else "")
    yield Text()
    yield table
    if len(shown.running) > room:
        yield _line(f"… and {len(shown.running) - room} more", "dim")
    for one in shown.running[:room]:
        if one.status == SILENT:
            yield _line(f"trial {one.trial}: {one.status_text}", "red")


def _cells(one: RunningTrial, wide: bool, rungs: bool, rows: bool) -> list[str]:
    plain = ("candidate", "replicate", *(("reference",) if rows else ()))
    name = one.name if one.type in plain else f"{one.name} ({one.type})"
    step = "" if one.step is None else f"{one.step:,}" + (f" of {one.steps:,}" if one.steps else "")
    left = one.status if one.seconds_left is None or one.status != "training" else format_duration(
        one.seconds_left)
    costs = ["" if cost is None else format_number(cost) for cost in (one.params, one.macs)]
    where = f"{one.host}, process {one.pid}" if one.host else ""
    return [name, *([one.architecture or ""] if wide else []), *costs, f"{one.trained_share:.0%}",
            step, _loss(one.loss), _loss(one.validation_loss),
            *(["end" if one.rung is None else str(one.rung)] if rungs else []), left,
            str(one.attempt), *([where] if wide else [])]


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _rungs(shown: StudySnapshot) -> Iterable[RenderableType]:
    if not shown.rungs:
        return
    stayed = "paused" if shown.owner.state == RUNNING else "stopped"
    table = _table("Rungs",
                   ("rung", "share", "reached", "went on", stayed, "failed", "best loss",
                    *(["order as at the " "end"]
                      if any(row.rank_correlation is not None for row in shown.rungs) else [])))
    for number, row in enumerate(shown.rungs, 1):
        last = number == len(shown.rungs)
        others = [""] * 3 if last else [str(row.promoted), str(row.paused), str(row.failed)]
        table.add_row("end" if last else str(number), f"{row.share:.3g}", str(row.reached), *others,
                      _loss(row.best_loss),
                      *([f"{row.rank_correlation:+.2f}"] if row.rank_correlation is not None
                        else []))
    yield Text()
    yield table


def _budget(shown: StudySnapshot, whole: bool) -> Iterable[RenderableType]:
    """How the forecast holds: a line, and on a whole screen a table of its parts."""
    budget = shown.forecast_status
    if budget is None:
        return
    yield _line(describe_forecast_status(budget))
    if not whole:
        return
    table = _table("CPU time", ("part", "forecast", "so far", "expected"))
    for part in TRAINING_PARTS:
        times = (budget.forecast.efforts, budget.spent, budget.expected)
        table.add_row(part, *(format_duration(each[part].cpu_seconds) for each in times))
    clock = (budget.forecast.wall_seconds, budget.wall_seconds, budget.expected_wall_seconds)
    table.add_row("on the clock", *(format_duration(each) for each in clock))
    yield Text()
    yield table
    yield _line(f"Forecast {format_duration(budget.forecast.cpu_seconds_low)} to "
                f"{format_duration(budget.forecast.cpu_seconds_high)}, by {budget.forecast.basis}",
                "dim", whole)


def _front(front: FrontSnapshot, now: float) -> Iterable[RenderableType]:
    if not front.members:
        yield _line("Nothing is finished yet.", "dim")
        return
    more = f", {len(front.members)} of them" if front.size > len(front.members) else ""
    title = (f"Front so far: {front.size}{more}" if front.size
             else f"References so far, by {front.main_objective}")
    table = _table(title, ("trial", *front.objectives))
    for row in front.members:
        table.add_row(_name(row), *(format_number(row.values[name]) for name in front.objectives))
    yield Text()
    yield table
    if front.hypervolume:
        yield _line(describe_hypervolume(front.hypervolume, now))


def _gain(shown: StudySnapshot, whole: bool) -> Iterable[RenderableType]:
    if shown.expected_gain:
        words = describe_gain(shown.expected_gain)
        yield _line(words[0].upper() + words[1:], whole=whole)


def _name(row: FrontMember) -> str:
    seeds = f" ({row.seeds} seeds)" if row.seeds > 1 else ""
    return f"{row.trial} {row.label}{seeds}" if row.label else f"{row.trial}{seeds}"


def _events(shown: StudySnapshot, whole: bool) -> Iterable[RenderableType]:
    if shown.events:
        yield Text()
    for event in shown.events:
        yield _line(str(event), "dim", whole)
    if shown.problem:
        yield _line(shown.problem, "red", whole)


def _table(title: str, headings: Iterable[str] = ()) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None,
                  header_style="dim", padding=(0, 1))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table


class ChangePrinter:
    """Prints what changed since the last look, a line each; at first the whole state."""

    def __init__(self) -> None:
        self._number = -1
        self._state: dict[str, str] = {}

    def lines(self, snapshot: StudySnapshot, events: Iterable[LoggedEvent] = ()) -> list[str]:
        """The lines to print now; ``events``: what happened, as far back as is known."""
        first = not self._state
        events = [one
                  for one in (snapshot.events if first else events) if one.number > self._number]
        lines = [f"{snapshot.study} · {snapshot.folder}", *_counts(snapshot)] if first else []
        lines += [str(one) for one in events] + self._changes(snapshot)
        if (first or events) and snapshot.owner.state == RUNNING:
            lines.append(f"{_count(snapshot.progress.done)} of {_count(snapshot.progress.total)} "
                         f"trainings, {describe_time_left(snapshot.eta)}")
        self._number = max([self._number, *(one.number for one in events)])
        return lines

    def _changes(self, shown: StudySnapshot) -> list[str]:
        """Yields changes of the teacher, the log and the owner."""
        owner = shown.owner
        teacher = shown.teacher
        now = {"teacher": teacher.stage if teacher else "", "problem": shown.problem,
               # of a silence, not how long it lasts
               "owner": f"{owner.state} {owner.reason.partition(' for ')[0]}"}
        words = {"teacher": describe_teacher(teacher) if teacher else "", "problem": shown.problem,
                 "owner": describe_owner(owner)}
        changes = [words[key] for key in now if now[key] != self._state.get(key) and words[key]]
        self._state = now
        return changes

    def end(self, snapshot: StudySnapshot) -> list[str]:
        """The best, once the study is over."""
        left = [f"trial {_name(row)}: "
                + ", ".join(f"{name} {format_number(value)}" for name, value in row.values.items())
                for row in snapshot.front.members]
        title = (f"Front: {snapshot.front.size}" if snapshot.front.size
                 else f"References: {len(left)}")
        volume = [describe_hypervolume(snapshot.front.hypervolume,
                                       snapshot.time)] if snapshot.front.hypervolume else []
        return [title, *left, *volume] if left else []
