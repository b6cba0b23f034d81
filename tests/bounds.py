"""Limits of CPU time and memory, and commands that must stay within them."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner, Result

from scalesearch.cli.main import app
from scalesearch.errors import UserError
from scalesearch.terminal import CONTROL_CHARACTERS

CPU_SECONDS = 10.0
BYTES = 1 << 30


@contextmanager
def bounded(what: object = "") -> Iterator[None]:
    """Assert that the block uses at most 10 CPU seconds and one more gigabyte of memory."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _peak()
    start = time.process_time()
    yield
    assert time.process_time() - start < CPU_SECONDS, what
    assert _peak() - before < BYTES, what


def _peak() -> int:
    """Largest resident size of this process, in bytes."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return 1024 * int(match[1])


def invoke_bounded(*arguments: object, text: str | bytes = "") -> Result:
    """Run a command within the limits; it must succeed or fail with a message.

    Exit status 1 is a training run that failed.
    """
    with bounded(arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=text)
    match result.exception:
        case UserError(code=code) as error:
            assert code and str(error), arguments
        case OSError(filename=str()):  # the command prints it as a message
            pass
        case error:
            assert isinstance(error, SystemExit | None) and result.exit_code in (0, 1), (
                arguments, result.exc_info)
    assert not CONTROL_CHARACTERS.search(result.output.replace("\r", "")), arguments
    return result
