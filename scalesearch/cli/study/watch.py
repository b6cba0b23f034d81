"""``scalesearch study watch``: follow a running study."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from scalesearch.cli.options import option, print_json
from scalesearch.cli.study.shared import find_study_folder, snapshot_console, study_argument
from scalesearch.terminal import open_console, print_text

if TYPE_CHECKING:
    from scalesearch.studies.monitor.heartbeat import Owner


@click.command()
@study_argument
@click.option("--every", type=click.FloatRange(0.1), default=2.0, show_default=True,
              metavar="SECONDS", help="Refresh interval.")
@click.option("--once", is_flag=True, help="Print the current state once and exit.")
@click.option("--wait/--no-wait", default=None,
              help="Keep watching a stopped study until it is resumed and finishes.  [default: on "
              "a terminal]")
@option("json")
def watch(study: str, every: float, once: bool, wait: bool | None, out: Path | None,
          as_json: bool) -> None:
    """Follow a running study, from any machine that can read its folder.

    The screen shows the process that runs the study and its heartbeat, finished and running trials,
    the remaining time, rungs, the teacher, the front and the last events. If the output is not a
    terminal, one line per change is printed. The command only reads, and ends when the study has
    finished.

    \b
    Example: scalesearch study watch runs/my-study
    """
    from rich.live import Live

    from scalesearch.studies.monitor.render import ChangePrinter, render_snapshot
    from scalesearch.studies.monitor.snapshot import StudyWatcher

    watcher = StudyWatcher(find_study_folder(study, out))
    if as_json:
        print_json(msgspec.to_builtins(watcher.snapshot()))
        return
    if once:
        console = snapshot_console()
        console.print(render_snapshot(watcher.snapshot(), console.width))
        return
    console = open_console()
    wait = console.is_terminal if wait is None else wait
    try:
        if console.is_terminal:
            snapshot = watcher.snapshot()
            with Live(console=console, auto_refresh=False) as live:  # the last screen stays
                while True:
                    live.update(render_snapshot(snapshot, console.width, console.height),
                                refresh=True)
                    if _is_over(snapshot.owner, wait):
                        break
                    time.sleep(every)
                    snapshot = watcher.snapshot()
        else:  # one line per change, and finally the front
            printer = ChangePrinter()
            while True:
                snapshot = watcher.snapshot()
                for line in printer.lines(snapshot, tuple(watcher.follower.events)):
                    print_text(line)
                if _is_over(snapshot.owner, wait):
                    break
                time.sleep(every)
            for line in printer.end(snapshot):
                print_text(line)
    except KeyboardInterrupt:
        raise SystemExit(0) from None  # the study keeps running


def _is_over(owner: Owner, wait: bool) -> bool:
    """Return True if the study is over. With ``wait``, a stopped study is not over."""
    from scalesearch.studies.monitor.heartbeat import STOPPED

    return owner.is_over and not (wait and owner.state == STOPPED)
