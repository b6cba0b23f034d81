"""``scalesearch study watch``: a study that runs elsewhere, on a screen that renews itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scalesearch.cli.options import json_option, print_json
from scalesearch.cli.study.shared import find_study_folder, snapshot_console, study_argument
from scalesearch.terminal import open_console, print_text

if TYPE_CHECKING:
    from rich.console import Console

    from scalesearch.study.monitor.heartbeat import Owner
    from scalesearch.study.monitor.snapshot import StudyWatcher


@click.command()
@study_argument
@click.option("--every", type=click.FloatRange(0.1), default=2.0, show_default=True,
              metavar="SECONDS", help="Between two looks.")
@click.option("--once", is_flag=True, help="Look once, print that, and end.")
@click.option("--wait/--no-wait", default=None,
              help="Go on watching when the study stops, until "
              "it is resumed and has finished.  [default: on a terminal]")
@json_option
def watch(study: str, every: float, once: bool, wait: bool | None, out: Path | None,
          as_json: bool) -> None:
    """Watch a study that runs, from anywhere that sees its folder; reads only.

    Ends when the study has finished.

    Shows who runs it and whether that lives, what is done and how long the rest may take, what is
    in training, the rungs, the teacher, the front so far and what happened last. Where the output
    is no terminal, a line a change.
    """
    from scalesearch.study.monitor.snapshot import StudyWatcher

    watched = StudyWatcher(find_study_folder(study, out))
    if as_json:
        print_json(watched.snapshot().to_json())
        return
    if once:
        from scalesearch.study.monitor.render import render_snapshot

        console = snapshot_console()
        console.print(render_snapshot(watched.snapshot(), console.width))
        return
    console = open_console()
    wait = console.is_terminal if wait is None else wait
    try:
        _redraw(watched, console, every, wait) if console.is_terminal else _print_changes(
            watched, every, wait)
    except KeyboardInterrupt:
        raise SystemExit(0) from None  # the study runs on; there is nothing to be said


def _ended(owner: Owner, wait: bool) -> bool:
    """Whether nothing more is to be seen; what was stopped may be resumed."""
    from scalesearch.study.monitor.heartbeat import STOPPED

    return owner.is_over and not (wait and owner.state == STOPPED)


def _redraw(watched: StudyWatcher, console: Console, every: float, wait: bool) -> None:
    """Until the study is over; the last screen stays on the terminal."""
    from rich.live import Live

    from scalesearch.study.monitor.render import render_snapshot

    shown = watched.snapshot()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(render_snapshot(shown, console.width, console.height), refresh=True)
            if _ended(shown.owner, wait):
                return
            time.sleep(every)
            shown = watched.snapshot()


def _print_changes(watched: StudyWatcher, every: float, wait: bool) -> None:
    """Until the study is over: where it stands, then a line a change, at last the front."""
    from scalesearch.study.monitor.render import ChangePrinter

    plain = ChangePrinter()
    while True:
        shown = watched.snapshot()
        for line in plain.lines(shown, tuple(watched.follower.events)):
            print_text(line)
        if _ended(shown.owner, wait):
            break
        time.sleep(every)
    for line in plain.end(shown):
        print_text(line)
