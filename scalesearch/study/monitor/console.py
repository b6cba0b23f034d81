"""Console of a study that this process runs: a live screen, or plain lines."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live

from scalesearch.study.monitor.events import LoggedEvent, describe_event
from scalesearch.study.monitor.heartbeat import owner_of
from scalesearch.study.monitor.render import draw
from scalesearch.study.monitor.snapshot import SHOWN_EVENTS, Snapshots
from scalesearch.study.trials.callback import Callback
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Kind, Trial
from scalesearch.terminal import print_text


class Lines(Callback):
    """Writes one plain line an event, for logs and pipes."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def message(self, text: str) -> None:
        self._write(f"{time.strftime('%H:%M:%S')} {text}")

    def started(self, trial: Trial) -> None:
        self.message(describe_event(Kind.STARTED, trial))

    def paused(self, trial: Trial) -> None:
        self.message(describe_event(Kind.RUNG, trial))

    def ended(self, trial: Trial) -> None:
        self.message(describe_event(Kind.ENDED, trial))


class Screen(Lines):
    """A screen that renews itself: the same that ``study watch`` shows."""

    def __init__(self, study: StudyDir) -> None:
        super().__init__(str)
        self._study, self._snapshots = study, Snapshots(study)
        self._events: deque[LoggedEvent] = deque(maxlen=SHOWN_EVENTS)

    def message(self, text: str) -> None:
        """Keeps a line among the latest events."""
        self._events.append(LoggedEvent(len(self._events), time.time(), text))

    def render(self, width: int, height: int | None = None) -> RenderableType:
        """The screen as it is now; called from rich's own thread, so it reads copies."""
        shown = self._snapshots.take(owner_of(self._study.folder), tuple(self._events))
        return draw(shown, width, height)


@contextmanager
def make_console(console: Console, study: StudyDir) -> Iterator[Callback]:
    """Shows ``study`` on ``console`` while inside."""
    if not console.is_terminal:
        yield Lines(lambda text: print_text(text, console))
        return
    screen = Screen(study)
    with Live(console=console, get_renderable=lambda: screen.render(console.width, console.height),
              refresh_per_second=2, transient=True):
        yield screen
