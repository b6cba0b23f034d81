"""Terminal output of a study that this process runs: a live screen or plain lines."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live

from scalesearch.studies.monitor.events import LoggedEvent, describe_event
from scalesearch.studies.monitor.heartbeat import read_owner
from scalesearch.studies.monitor.render import render_snapshot
from scalesearch.studies.monitor.snapshot import MAX_EVENTS_SHOWN, SnapshotBuilder
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Callback, EventType, Trial
from scalesearch.terminal import print_text


class LineConsole(Callback):
    """Writes one plain line per event, for logs and pipes."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def message(self, text: str) -> None:
        self._write(f"{time.strftime('%H:%M:%S')} {text}")

    def started(self, trial: Trial) -> None:
        self.message(describe_event(EventType.STARTED, trial))

    def paused(self, trial: Trial) -> None:
        self.message(describe_event(EventType.RUNG, trial))

    def ended(self, trial: Trial) -> None:
        self.message(describe_event(EventType.ENDED, trial))


class LiveConsole(LineConsole):
    """Screen that is refreshed continuously, the same as that of ``study watch``."""

    def __init__(self, study: StudyDir) -> None:
        super().__init__(str)
        self._study = study
        self._snapshots = SnapshotBuilder(study)
        self._events: deque[LoggedEvent] = deque(maxlen=MAX_EVENTS_SHOWN)

    def message(self, text: str) -> None:
        """Add a line to the latest events."""
        self._events.append(LoggedEvent(len(self._events), time.time(), text))

    def render(self, width: int, height: int | None = None) -> RenderableType:
        """Render the present screen.

        It is called from the thread of rich, so it uses a copy of the events.
        """
        snapshot = self._snapshots.take(read_owner(self._study.folder), tuple(self._events))
        return render_snapshot(snapshot, width, height)


@contextmanager
def make_console(console: Console, study: StudyDir) -> Iterator[Callback]:
    """Context in which ``study`` is shown on ``console``."""
    if not console.is_terminal:
        yield LineConsole(lambda text: print_text(text, console))
        return
    screen = LiveConsole(study)
    with Live(console=console, get_renderable=lambda: screen.render(console.width, console.height),
              refresh_per_second=2, transient=True):
        yield screen
