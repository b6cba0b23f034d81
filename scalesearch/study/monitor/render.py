"""Draws what is shown of a watched study: a screen for terminals, plain lines elsewhere."""

import time
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scalesearch.study.monitor.eta import Eta
from scalesearch.study.monitor.events import LoggedEvent
from scalesearch.study.monitor.forecast import describe_budget
from scalesearch.study.monitor.format import ago, short, span
from scalesearch.study.monitor.front import Front, FrontRow, Volume
from scalesearch.study.monitor.gain import describe_gain
from scalesearch.study.monitor.heartbeat import FINISHED, RUNNING, STOPPED, Owner
from scalesearch.study.monitor.running import SILENT, RunningTeacher, RunningTrial
from scalesearch.study.monitor.snapshot import StudySnapshot
from scalesearch.study.trials.trial import State
from scalesearch.train.effort import TRAINING_PARTS

WIDE = 110  # columns from which on architectures and machines are named, too
MIN_ROWS = 3  # rows of what is in training that are shown however low the terminal is
STATES = (State.COMPLETE, State.PENDING, State.PAUSED, State.FAILED, State.INFEASIBLE, State.DUPLICATE)
COLOURS = {FINISHED: "green", STOPPED: "red"}


def draw(shown: StudySnapshot, width: int, height: int | None = None) -> Group:
    """The screen; what is in training is cut to what fits into ``height`` lines, without which nothing is cut short."""
    whole = height is None
    parts: list[RenderableType] = [_line(f"{shown.study} · {shown.folder}", "bold", whole),
                                   _line(describe_owner(shown.owner), COLOURS.get(shown.owner.state, ""), whole),
                                   _bar(shown, width),
                                   *(_line(text, whole=whole) for text in _counts(shown))]
    if shown.teacher:
        parts.append(_line(describe_teacher(shown.teacher)))
    below: list[RenderableType] = [*_budget(shown, whole), *_rungs(shown), *_front(shown.front, shown.time),
                                    *_gain(shown, whole), *_events(shown, whole)]
    rest = sum(part.row_count + 3 if isinstance(part, Table) else 1 for part in (*parts, *below))
    room = len(shown.training) if height is None else max(MIN_ROWS, height - rest - 5)
    return Group(*parts, *_training(shown, width, room), *below)


def describe_owner(owner: Owner) -> str:
    """Describes the owner: its sign of life, or how it ended."""
    who = f" on {owner.host}, process {owner.process}" if owner.host else ""
    if owner.state == RUNNING:
        since = "" if owner.since is None else f", for {span(time.time() - owner.since)}"
        life = owner.reason or f"last sign of life {owner.silent or 0:.0f} s ago"
        return f"running{who}{since}; {life}; {owner.where}".removesuffix("; ")
    ended = f", {ago(time.time() - owner.ended)}" if owner.ended is not None else ""
    return f"{owner.state}{ended}: {owner.reason}"


def describe_left(eta: Eta) -> str:
    """The time that is left, in words."""
    if eta.seconds is None:
        return "time left unknown"
    seeds = f", up to {span(eta.front_seeds)} of it for further seeds" if eta.front_seeds >= 1 else ""
    return f"about {span(eta.seconds)} left{seeds}"


def describe_teacher(teacher: RunningTeacher) -> str:
    """Describes the progress of the teacher."""
    return f"Teacher: {teacher.stage}, {teacher.words}"


def describe_volume(volume: Volume, now: float) -> str:
    """The hypervolume, and its latest change."""
    before = volume.value - volume.gain
    grown = f", {volume.gain / before:+.2%}" if before > 0 and 0 < volume.gain < 10 * before else ""
    when = "" if volume.when is None else f", {ago(now - volume.when)}"
    return f"Hypervolume {volume.value:.5g}; latest change {volume.gain:+.3g}{grown} with trial {volume.trial}{when}"


def _count(trainings: float) -> str:
    """Full trainings, with a tenth where one is under way."""
    return f"{trainings:,.1f}".removesuffix(".0")


def _line(text: str, style: str = "", whole: bool = False) -> Text:
    """One line, cut to the screen's width unless it is to be ``whole``."""
    return Text(text, style=style, no_wrap=not whole, overflow="fold" if whole else "ellipsis")


def _bar(shown: StudySnapshot, width: int) -> Table:
    done, bar = shown.done, Table.grid(padding=(0, 1))
    left = f" · {describe_left(shown.eta)}" if shown.owner.state == RUNNING else ""
    words = f"{done.share:.0%} · {_count(done.done)} of {_count(done.of)} trainings{left}"
    bar.add_row(ProgressBar(100, 100 * done.share, width=max(10, min(40, width - len(words) - 2))), words)
    return bar


def _counts(shown: StudySnapshot) -> list[str]:
    """Counts what is done of what is wanted, and candidates by state."""
    done, named = shown.done, "rows" if _of_rows(shown) else "references"
    parts = [f"{_count(part)} of {_count(of)} {name}" for name, (part, of) in (
        ("candidates", done.candidates), (named, done.references),
        (f"{named}' further seeds", done.reference_seeds)) if of]
    if any(done.front_seeds):
        parts.append(f"{done.front_seeds[0]} of at most {done.front_seeds[1]} further seeds for the front")
    words = {State.PENDING: "in training" if shown.owner.state == RUNNING else "interrupted"}
    counted = [f"{shown.counts[state]:,} {words.get(state, state)}" for state in STATES if shown.counts[state]]
    return [" · ".join(line) for line in (parts, counted) if line]


def _of_rows(shown: StudySnapshot) -> bool:
    """Whether the study trains named architectures alone: its file's rows."""
    return not shown.done.candidates[1]


def _training(shown: StudySnapshot, width: int, room: int) -> Iterable[RenderableType]:
    if not shown.training:
        return
    wide = width >= WIDE
    table = _table("In training" if shown.owner.state == RUNNING else "Interrupted")
    for heading in ("trial", *(("architecture",) if wide else ()), "params", "MACs", "done", "step", "loss", "valid",
                    *(("to rung",) if shown.rungs else ()), "left", "try", *(("worker",) if wide else ())):
        table.add_column(heading, justify="left" if heading in ("trial", "architecture", "worker") else "right",
                         no_wrap=True, overflow="ellipsis")
    for one in shown.training[:room]:
        cells = _cells(one, wide, bool(shown.rungs), _of_rows(shown))
        table.add_row(*cells, style="red" if one.doing == SILENT else "")
    yield Text()
    yield table
    if len(shown.training) > room:
        yield _line(f"… and {len(shown.training) - room} more", "dim")
    for one in shown.training[:room]:
        if one.doing == SILENT:
            yield _line(f"trial {one.trial}: {one.words}", "red")


def _cells(one: RunningTrial, wide: bool, rungs: bool, rows: bool) -> list[str]:
    plain = ("candidate", "replicate", *(("reference",) if rows else ()))
    name = one.name if one.kind in plain else f"{one.name} ({one.kind})"
    step = "" if one.step is None else f"{one.step:,}" + (f" of {one.steps:,}" if one.steps else "")
    left = one.doing if one.seconds_left is None or one.doing != "training" else span(one.seconds_left)
    costs = ["" if cost is None else short(cost) for cost in (one.params, one.macs)]
    where = f"{one.host}, process {one.process}" if one.host else ""
    return [name, *([one.id or ""] if wide else []), *costs, f"{one.share:.0%}", step, _loss(one.loss),
            _loss(one.valid), *(["end" if one.rung is None else str(one.rung)] if rungs else []), left,
            str(one.attempt), *([where] if wide else [])]


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _rungs(shown: StudySnapshot) -> Iterable[RenderableType]:
    if not shown.rungs:
        return
    stayed = "paused" if shown.owner.state == RUNNING else "stopped"
    table = _table("Rungs", ("rung", "share", "reached", "went on", stayed, "failed", "best loss",
                             *(["order as at the end"] if any(row.told is not None for row in shown.rungs) else [])))
    for number, row in enumerate(shown.rungs, 1):
        last = number == len(shown.rungs)
        others = [""] * 3 if last else [str(row.went_on), str(row.paused), str(row.failed)]
        table.add_row("end" if last else str(number), f"{row.share:.3g}", str(row.reached), *others, _loss(row.best),
                      *([f"{row.told:+.2f}"] if row.told is not None else []))
    yield Text()
    yield table


def _budget(shown: StudySnapshot, whole: bool) -> Iterable[RenderableType]:
    """How the forecast holds: a line, and on a whole screen a table of its parts."""
    budget = shown.budget
    if budget is None:
        return
    yield _line(describe_budget(budget))
    if not whole:
        return
    table = _table("CPU time", ("part", "forecast", "so far", "expected"))
    for part in TRAINING_PARTS:
        times = (budget.forecast.efforts, budget.spent, budget.expected)
        table.add_row(part, *(span(each[part].cpu_seconds) for each in times))
    clock = (budget.forecast.seconds, budget.seconds, budget.expected_seconds)
    table.add_row("on the clock", *(span(each) for each in clock))
    yield Text()
    yield table
    yield _line(f"Forecast {span(budget.forecast.low)} to {span(budget.forecast.high)}, by {budget.forecast.basis}",
                "dim", whole)


def _front(front: Front, now: float) -> Iterable[RenderableType]:
    if not front.rows:
        yield _line("Nothing is finished yet.", "dim")
        return
    more = f", {len(front.rows)} of them" if front.size > len(front.rows) else ""
    title = f"Front so far: {front.size}{more}" if front.size else f"References so far, by {front.main}"
    table = _table(title, ("trial", *front.objectives))
    for row in front.rows:
        table.add_row(_name(row), *(short(row.values[name]) for name in front.objectives))
    yield Text()
    yield table
    if front.volume:
        yield _line(describe_volume(front.volume, now))


def _gain(shown: StudySnapshot, whole: bool) -> Iterable[RenderableType]:
    if shown.gain:
        words = describe_gain(shown.gain)
        yield _line(words[0].upper() + words[1:], whole=whole)


def _name(row: FrontRow) -> str:
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
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim", padding=(0, 1))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table


class Plain:
    """Prints what changed since the last look, a line each; at first the whole state."""

    def __init__(self) -> None:
        self._number = -1
        self._state: dict[str, str] = {}

    def lines(self, shown: StudySnapshot, event: Iterable[LoggedEvent] = ()) -> list[str]:
        """The lines to print now; ``event``: what happened, as far back as is known."""
        first = not self._state
        event = [one for one in (shown.events if first else event) if one.number > self._number]
        lines = [f"{shown.study} · {shown.folder}", *_counts(shown)] if first else []
        lines += [str(one) for one in event] + self._changes(shown)
        if (first or event) and shown.owner.state == RUNNING:
            lines.append(f"{_count(shown.done.done)} of {_count(shown.done.of)} trainings, {describe_left(shown.eta)}")
        self._number = max([self._number, *(one.number for one in event)])
        return lines

    def _changes(self, shown: StudySnapshot) -> list[str]:
        """Yields changes of the teacher, the log and the owner."""
        owner, teacher = shown.owner, shown.teacher
        now = {"teacher": teacher.stage if teacher else "", "problem": shown.problem,
               "owner": f"{owner.state} {owner.reason.partition(' for ')[0]}"}  # of a silence, not how long it lasts
        words = {"teacher": describe_teacher(teacher) if teacher else "", "problem": shown.problem,
                 "owner": describe_owner(owner)}
        changes = [words[key] for key in now if now[key] != self._state.get(key) and words[key]]
        self._state = now
        return changes

    def end(self, shown: StudySnapshot) -> list[str]:
        """The best, once the study is over."""
        left = [f"trial {_name(row)}: " + ", ".join(f"{name} {short(value)}" for name, value in row.values.items())
                 for row in shown.front.rows]
        title = f"Front: {shown.front.size}" if shown.front.size else f"References: {len(left)}"
        volume = [describe_volume(shown.front.volume, shown.time)] if shown.front.volume else []
        return [title, *left, *volume] if left else []
