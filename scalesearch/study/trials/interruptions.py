"""Messages for what stops a study from outside: how to go on. Nothing that finished is lost by it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.files import DiskFull

AGAIN = "What finished is safe; go on with the same command and --resume"


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """A stretch of the study in ``folder`` that may be cut off by its disk.

    Raises:
        DiskFull: there is no room, with how to go on.
        UserError: the disk fails otherwise; likewise.
    """
    try:
        yield
    except DiskFull as full:
        text = str(full)
        raise DiskFull(text if "--resume" in text else f"{text} with --resume: what finished is safe") from full
    except (ConnectionError, BrokenPipeError, TimeoutError):
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise UserError(f"{folder}: the study cannot go on: {where}{error.strerror or error}. {AGAIN}",
                        code="disk-error") from error
