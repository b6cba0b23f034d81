"""Terminal output of study snapshots: a screen, or plain lines."""

import textwrap
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import repeat

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scalesearch.studies.eta import Eta
from scalesearch.studies.forecast import ForecastStatus
from scalesearch.studies.monitor.events import LoggedEvent
from scalesearch.studies.monitor.format import (
    STATE_WORDS,
    describe_forecast_status,
    describe_gain,
    describe_range,
    format_ago,
    format_column,
    format_duration,
    format_number,
    format_percent,
    format_phases,
    format_value,
)
from scalesearch.studies.monitor.heartbeat import FINISHED, RUNNING, STOPPED, Owner
from scalesearch.studies.monitor.running import INTERRUPTED, SILENT, TRAINING
from scalesearch.studies.monitor.snapshot import (
    FrontHypervolume,
    FrontMember,
    StudySnapshot,
)
from scalesearch.studies.trials.trial import State
from scalesearch.terminal import format_count, set_column_widths
from scalesearch.training.effort import TRAINING_PARTS

WIDE_COLUMNS = 110  # minimum width with columns for architectures and machines
MAX_TEXT_LINES = 2  # lines of a text on a screen of limited height
MIN_ROWS = 3  # rows of running trials that are shown in the smallest terminal
LEFT_ALIGNED = {"trial", "architecture", "worker", "rung", "part", "phase"}  # columns of text
STATE_COLORS = {FINISHED: "green", STOPPED: "red"}


def render_snapshot(snapshot: StudySnapshot, width: int, height: int | None = None) -> Group:
    """Render a snapshot as a screen of ``width`` columns.

    If ``height`` is given, the table of running trials has only the rows that fit, and texts have
    at most ``MAX_TEXT_LINES`` lines.
    """
    whole = height is None

    def text_of(text: str, style: str = "") -> Text:
        return wrapped_text(text, width, style, None if whole else MAX_TEXT_LINES)

    progress = snapshot.progress
    is_running = snapshot.owner.state == RUNNING
    left = f" · {describe_time_left(snapshot.eta)}" if is_running else ""
    done = f"{format_percent(progress.share)} · {describe_runs(snapshot)}{left}"
    bar = Table.grid(padding=(0, 1))
    bar.add_row(ProgressBar(100, 100 * progress.share,
                            width=max(10, min(40, width - len(done) - 2))), done)
    above: list[RenderableType] = [
        text_of(f"{snapshot.study} · {snapshot.folder}", "bold"),
        text_of(describe_owner(snapshot.owner), STATE_COLORS.get(snapshot.owner.state, "")),
        bar, *(text_of(text) for text in describe_counts(snapshot))]
    if snapshot.teacher:
        above.append(text_of(f"Teacher: {snapshot.teacher}"))
    below: list[RenderableType] = []
    if snapshot.forecast_status:
        if_resumed = " if resumed" if snapshot.owner.state == STOPPED else ""
        below.append(text_of(describe_forecast_status(snapshot.forecast_status, if_resumed)))
        if whole:
            forecast = snapshot.forecast_status.forecast
            basis = [describe_range(forecast), f"based on {forecast.basis}"]
            below += [Text(), forecast_table(snapshot.forecast_status, if_resumed),
                      text_of("Forecast " + "; ".join(filter(None, basis)), "dim")]
    if whole and snapshot.phases:
        below += [Text(), _table("Wall-clock time per run", [
            {"phase": phase, "time": text}
            for phase, text in format_phases(snapshot.phases).items()])]
    if snapshot.rungs:
        below += [Text(), rungs_table(snapshot)]
    below += ([Text(), front_table(snapshot)] if snapshot.front_summary.members
              else [text_of("No finished trials.", "dim")])
    if snapshot.front_summary.hypervolume:
        below += map(text_of, describe_hypervolume(snapshot.front_summary.hypervolume,
                                                   snapshot.time))
    if snapshot.expected_gain:
        gain = describe_gain(snapshot.expected_gain)
        below.append(text_of(gain[0].upper() + gain[1:]))
    if snapshot.events:
        below += [Text(), *(text_of(str(event), "dim") for event in snapshot.events)]
    if snapshot.problem:
        below.append(text_of(snapshot.problem, "red"))
    used_height = sum(part.row_count + 3 if isinstance(part, Table)
                      else 1 + part.plain.count("\n") if isinstance(part, Text) else 1
                      for part in (*above, *below))
    room = len(snapshot.running) if height is None else max(MIN_ROWS, height - used_height - 5)
    shown = snapshot.running[:room]
    middle: list[RenderableType] = []
    if snapshot.running:
        middle = [Text(), running_table(snapshot, room, width >= WIDE_COLUMNS)]
    if len(snapshot.running) > room:
        middle.append(text_of(f"… and {len(snapshot.running) - room} more", "dim"))
    middle += [text_of(f"trial {trial.trial}: {trial.status_text}", "red")
               for trial in shown if trial.status == SILENT]
    parts = [*above, *middle, *below]
    for part in parts:
        if isinstance(part, Table) and part is not bar:
            set_column_widths(part, width)
            for column in part.columns:
                column.no_wrap = not whole  # a screen of limited height has a line per row
                column.overflow = "fold" if whole else "ellipsis"
    return Group(*parts)


# -- tables


def running_table(snapshot: StudySnapshot, room: int, is_wide: bool) -> Table:
    """Table of at most ``room`` trials in training."""
    plain_types = {"candidate", "replicate"}
    if _has_only_fixed_architectures(snapshot):
        plain_types.add("reference")
    shown = snapshot.running[:room]
    params = format_column([trial.params for trial in shown])
    macs = format_column([trial.macs for trial in shown])
    format_steps = "{:,}".format if is_wide else format_number
    separator = " of " if is_wide else "/"  # a number is not split over lines
    rows = []
    for index, trial in enumerate(shown):
        total_steps = ""
        if trial.step is not None and trial.steps:
            total_steps = f"{separator}{format_steps(trial.steps)}"
        is_timed = trial.status in (TRAINING, INTERRUPTED) and trial.seconds_left is not None
        rows.append({
            "trial": trial.name + ("" if trial.type in plain_types else f" ({trial.type})"),
            "architecture": trial.architecture or "",
            "params": params[index],
            "MACs": macs[index],
            "done": format_percent(trial.trained_share),
            "step": _optional(trial.step, format_steps) + total_steps,
            "loss": _optional(trial.loss, "{:.3f}".format),
            "val loss": _optional(trial.validation_loss, "{:.3f}".format),
            "to rung": str(trial.rung or "end"),
            "left": format_duration(trial.seconds_left or 0) if is_timed else trial.status,
            "start": str(trial.attempt),
            "worker": f"{trial.host}, process {trial.pid}" if trial.host else ""})
    has_retries = any(trial.attempt > 1 for trial in shown)
    hidden = {*(() if is_wide else ("architecture", "worker")),
              *(() if is_wide or has_retries else ("start",)),
              *(() if snapshot.rungs else ("to rung",))}
    title = "In training" if snapshot.owner.state == RUNNING else "Interrupted"
    return _table(f"{title}, with losses in nats per token", rows, hidden,
                  ["red" if trial.status == SILENT else "" for trial in shown])


def rungs_table(snapshot: StudySnapshot) -> Table:
    """Table of rungs; the last row is the end."""
    rows = []
    for number, rung in enumerate(snapshot.rungs, 1):
        is_end = rung is snapshot.rungs[-1]
        counts = {"promoted": rung.promoted, "paused": rung.paused, "failed": rung.failed}
        rows.append({"rung": "end" if is_end else str(number), "share": f"{rung.share:.3g}",
                     "reached": str(rung.reached),
                     **{name: "" if is_end else str(count) for name, count in counts.items()},
                     "best loss": _optional(rung.best_loss, "{:.3f}".format),
                     "rank correlation": _optional(rung.rank_correlation, "{:+.2f}".format)})
    has_correlation = any(row["rank correlation"] for row in rows)
    return _table(f"Rungs, with losses in {snapshot.loss_unit}", rows,
                  () if has_correlation else ("rank correlation",))


def forecast_table(status: ForecastStatus, if_resumed: str) -> Table:
    """Table of the time per part: forecast, so far, and expected."""
    seconds = {part: [efforts[part].cpu_seconds
                      for efforts in (status.forecast.efforts, status.spent, status.expected)]
               for part in TRAINING_PARTS}
    seconds["wall-clock time"] = [status.forecast.wall_seconds, status.wall_seconds,
                                  status.expected_wall_seconds]
    headings = ("forecast", "so far", f"expected{if_resumed}")
    return _table("CPU time", [{"part": part, **dict(zip(headings, map(format_duration, values)))}
                               for part, values in seconds.items()])


def front_table(snapshot: StudySnapshot) -> Table:
    """Table of members of the front; of fixed architectures while the front is empty."""
    front = snapshot.front_summary
    shown = f" ({len(front.members)} shown)" if front.size > len(front.members) else ""
    title = (f"Front so far: {format_count(front.size, 'member')}{shown}" if front.size
             else f"{_fixed_noun(snapshot).capitalize()} so far, by {front.main_objective}")
    columns = {name: format_column([member.values[name] for member in front.members], name)
               for name in front.objectives}
    return _table(title, [{"trial": _member_name(member),
                           **{name: cells[index] for name, cells in columns.items()}}
                          for index, member in enumerate(front.members)])


def _table(title: str, rows: Sequence[Mapping[str, str]], hidden: Container[str] = (),
           styles: Iterable[str] = repeat("")) -> Table:
    """Table of rows (heading to text), without the ``hidden`` columns; at least one row."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None,
                  header_style="dim", padding=(0, 1))
    headings = [heading for heading in rows[0] if heading not in hidden]
    for heading in headings:
        table.add_column(heading, justify="left" if heading in LEFT_ALIGNED else "right",
                         no_wrap=True)
    for row, style in zip(rows, styles):
        table.add_row(*(row[heading] for heading in headings), style=style)
    return table


def _optional(value: float | None, format_value: Callable[[float], str]) -> str:
    return "" if value is None else format_value(value)


def wrapped_text(text: str, width: int, style: str, max_lines: int | None) -> Text:
    """Text wrapped at ``width`` columns; the last of ``max_lines`` ends with … if more follow."""
    lines = textwrap.wrap(text, width, max_lines=max_lines, placeholder=" …",
                          break_on_hyphens=False)
    return Text("\n".join(lines), style=style)


# -- descriptions


def _has_only_fixed_architectures(snapshot: StudySnapshot) -> bool:
    """Whether the study trains only architectures that its file names."""
    return not snapshot.progress.candidates[1]


def _fixed_noun(snapshot: StudySnapshot) -> str:
    return "architectures" if _has_only_fixed_architectures(snapshot) else "references"


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


def describe_runs(snapshot: StudySnapshot) -> str:
    """Describe the compute so far and in total, in full-budget runs."""
    return (f"{_count(snapshot.progress.done)} of {_count(snapshot.progress.total)} full-budget "
            "runs")


def describe_time_left(eta: Eta) -> str:
    """Describe the remaining time."""
    if eta.seconds is None:
        return "time left unknown"
    seeds = (f", up to {format_duration(eta.front_seeds)} of it for further seeds"
             if eta.front_seeds >= 1 else "")
    return f"about {format_duration(eta.seconds)} left{seeds}"


def describe_counts(snapshot: StudySnapshot) -> list[str]:
    """Describe the number of candidates per state, and the compute per part of the study.

    A study with candidates only has one part, which :func:`describe_runs` describes.
    """
    progress = snapshot.progress
    fixed = _fixed_noun(snapshot)
    # with rungs, more candidates start than full-budget runs are planned
    candidates = "full-budget runs of candidates" if snapshot.rungs else "candidates"
    parts = [f"{name} {_count(done)} of {_count(total)}" for name, (done, total) in (
        (candidates, progress.candidates), (fixed, progress.references),
        (f"further seeds of {fixed}", progress.reference_seeds)) if total]
    if any(progress.front_seeds):
        done, limit = progress.front_seeds
        parts.append(f"further seeds of the front {done} of at most {limit}")
    pending = "in training" if snapshot.owner.state == RUNNING else "interrupted"
    states = [f"{snapshot.complete} complete" if state == State.COMPLETE else
              f"{snapshot.counts[state]:,} {pending if state == State.PENDING else state}"
              for state in STATE_WORDS if snapshot.counts[state]]
    lines = [" · ".join(states)] if states else []
    return [*lines, *([" · ".join(parts)] if len(parts) > 1 else [])]


def describe_hypervolume(volume: FrontHypervolume, now: float) -> list[str]:
    """Describe the hypervolume and its growth by the newest member of the front, in two lines.

    ``now`` is in seconds since the epoch.
    """
    before = volume.value - volume.gain
    growth = (f" ({format_percent(volume.gain / before, 2, '+')})"
              if before > 0 and 0 < volume.gain < 10 * before else "")
    ago = "" if volume.ended_at is None else f", {format_ago(now - volume.ended_at)}"
    return [f"Hypervolume {volume.value:.5g}; its reference point follows the worst values so far.",
            f"Newest on the front: trial {volume.trial}{ago}; it adds {volume.gain:.5g}{growth}."]


def _count(runs: float) -> str:
    """Format a number of full-budget runs, with one decimal if it is not an integer."""
    return f"{runs:,.1f}".removesuffix(".0")


def _member_name(member: FrontMember) -> str:
    label = f" {member.label}" if member.label else ""
    seeds = f" ({member.seeds} seeds)" if member.seeds > 1 else ""
    return f"{member.trial}{label}{seeds}"


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
        is_first = not self._state
        new_events = [event for event in (snapshot.events if is_first else events)
                      if event.number > self._last_event]
        self._last_event = max([self._last_event, *(event.number for event in new_events)])
        owner = snapshot.owner
        teacher = snapshot.teacher
        # A missing heartbeat is reported once, so its duration is not part of the state.
        state = {"teacher": teacher.stage if teacher else "", "problem": snapshot.problem,
                 "owner": f"{owner.state} {owner.reason.partition(' for ')[0]}"}
        words = {"teacher": f"Teacher: {teacher}" if teacher else "", "problem": snapshot.problem,
                 "owner": describe_owner(owner)}
        changes = [words[key] for key in state if state[key] != self._state.get(key) and words[key]]
        self._state = state
        lines = [*map(str, new_events), *changes]
        if is_first:
            lines = [f"{snapshot.study} · {snapshot.folder}", *describe_counts(snapshot), *lines]
        if (is_first or new_events) and owner.state == RUNNING:
            lines.append(f"{describe_runs(snapshot)}, {describe_time_left(snapshot.eta)}")
        return lines

    def end(self, snapshot: StudySnapshot) -> list[str]:
        """Return the lines about the best candidates, once the study has ended."""
        front = snapshot.front_summary
        members = [f"trial {_member_name(member)}: "
                   + ", ".join(f"{name} {format_value(value, name)}"
                               for name, value in member.values.items())
                   for member in front.members]
        title = (f"Front: {front.size}" if front.size
                 else f"{_fixed_noun(snapshot).capitalize()}: {len(members)}")
        volume = (describe_hypervolume(front.hypervolume, snapshot.time)
                  if front.hypervolume else [])
        return [title, *members, *volume] if members else []
