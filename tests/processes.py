"""Start, await and end processes like the background jobs of a script."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from scalesearch.cli.main import main

HANG = 900.0  # seconds; longer than any process takes on a busy machine, so only hangs exceed it


def in_the_background() -> None:
    """Ignore SIGINT, as background jobs of scripts do; for ``preexec_fn``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start ``scalesearch ARGUMENTS`` in ``folder``, with its own cache in that folder."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder / "cache"),
                   "COLUMNS": "160"}
    return subprocess.Popen([sys.executable, "-m", "scalesearch", *map(str, arguments)], cwd=folder,
                            env=environment, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, preexec_fn=in_the_background)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for ``process``; return exit status, output and errors."""
    try:
        out, err = process.communicate(timeout=HANG)
    finally:
        process.kill()
    return process.returncode, out, err


def call(folder: Path, *arguments: object, status: int = 0) -> str:
    """Output and errors of ``scalesearch ARGUMENTS``, which must exit with ``status``."""
    code, out, err = ended(start(folder, *arguments))
    assert code == status, f"{code}\n{out}\n{err}"
    return out + err


def wait_until(condition: Callable[[], object],
               process: subprocess.Popen[str] | None = None) -> None:
    """Wait for ``condition``; fail if ``process``, which should fulfil it, ends before."""
    limit = time.monotonic() + HANG
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < limit, "the condition is not fulfilled"
        time.sleep(0.01)


def within(folder: Path, *arguments: object,
           **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``scalesearch ARGUMENTS`` in ``folder`` in this process, which saves the imports."""
    out = io.StringIO()
    err = io.StringIO()
    environment = {"XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "160"} | environment
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["scalesearch", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), out.getvalue(),
                                       err.getvalue())


def command(folder: Path, *arguments: object, status: int = 0) -> str:
    """Output and errors of ``scalesearch ARGUMENTS``, run in this process by :func:`within`."""
    done = within(folder, *arguments)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr
