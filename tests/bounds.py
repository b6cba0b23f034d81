"""Bounds of what damaged files may cost, and calls of verbs that are held to them."""

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
    """A stretch that takes neither more than ten CPU-seconds nor another gigabyte of memory."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _peak()
    start = time.process_time()
    yield
    assert time.process_time() - start < CPU_SECONDS, what
    assert _peak() - before < BYTES, what


def _peak() -> int:
    """Largest resident size of this process, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def invoke_bounded(*arguments: object, text: str | bytes = "") -> Result:
    """Calls a verb, which answers or is refused with a message, and within bounds; 1 is a training that failed."""
    with bounded(arguments):
        result = CliRunner().invoke(app, [str(one) for one in arguments], input=text)
    match result.exception:
        case UserError(code=code) as error:
            assert code and str(error), arguments
        case OSError(filename=str()):  # which the command turns into a message
            pass
        case error:
            assert isinstance(error, SystemExit | None) and result.exit_code in (0, 1), (
                arguments, result.exc_info)
    assert not CONTROL_CHARACTERS.search(result.output.replace("\r", "")), arguments
    return result
