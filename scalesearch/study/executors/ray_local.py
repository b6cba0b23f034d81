"""A Ray runtime that only this process can use; leftovers of dead processes are removed.

::

    TMP/scalesearch-UID/        mode 0700, because Ray makes its own folders readable by all users
      ray-XXXXXXXX/.lock        held by the process that started this Ray
      ray-XXXXXXXX/auth_token   mode 0600; a process with this token can run code in this Ray
      ray-XXXXXXXX/r/           sessions and sockets of Ray, which need short paths

Each request needs the token (since Ray 2.52). All ports are bound to the loopback interface.
"""

import os
import secrets
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from ray._private import ray_constants, services
from ray._raylet import AuthenticationTokenLoader, Config

# Seconds that a busy machine may need to start a node; Ray itself waits only 30 seconds.
NODE_START_TIMEOUT = 120.0
TOKEN_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@contextmanager
def private_ray_folder() -> Iterator[str]:
    """Yield a new folder for Ray; while the block runs, Ray starts with a private token."""
    with ExitStack() as stack:
        folder = stack.enter_context(_locked_folder(_root()))
        token = os.open(folder / "auth_token", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(token, "w") as file:
            file.write(secrets.token_hex(32))
        stack.enter_context(_environment(folder / "auth_token"))
        yield str(folder / "r")


def _root() -> Path:
    """Return the folder of this user's Rays; a new folder if another user owns that path."""
    root = Path(tempfile.gettempdir()) / f"scalesearch-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    is_own = (stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
              and not status.st_mode & 0o077)
    return root if is_own else Path(tempfile.mkdtemp(prefix="scalesearch-"))


@contextmanager
def _locked_folder(root: Path) -> Iterator[Path]:
    """Yield a new locked folder; remove it afterwards. Folders of dead processes are removed."""
    with FileLock(root / ".lock"):  # no other process removes a new folder before it is locked
        remove_stale_rays(root)
        folder = Path(tempfile.mkdtemp(dir=root, prefix="ray-"))
        lock = FileLock(folder / ".lock")
        lock.acquire()
    try:
        yield folder
    finally:
        lock.release()
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale_rays(root: Path) -> None:
    """Kill the processes and remove the folders that Rays of dead processes have left."""
    for folder in root.glob("ray-*"):
        with suppress(OSError, Timeout), FileLock(folder / ".lock", timeout=0):
            for process in _stale_processes(folder):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)


def _stale_processes(folder: Path) -> list[int]:
    """Return the ids of Ray's processes that use ``folder``.

    They are found by their command lines. Workers replace theirs by a title that starts with
    ``ray::``; their environment has the token's path.
    """
    inside = os.fsencode(folder / "r")
    token = b"RAY_AUTH_TOKEN_PATH=" + os.fsencode(folder / "auth_token") + b"\0"
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            command = (process / "cmdline").read_bytes()
            if inside in command or (command.startswith(b"ray::")
                                     and token in (process / "environ").read_bytes()):
                pids.append(int(process.name))
    return pids


@contextmanager
def _environment(token: Path) -> Iterator[None]:
    """While the block runs, Ray starts with this token and binds its ports to the loopback.

    Ray reads these settings when it is imported, so they are also set in its constants.
    """
    before = {name: os.environ.pop(name, None) for name in TOKEN_VARIABLES}
    cluster = ray_constants.ENABLE_RAY_CLUSTER
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    # Ray sets this on systems on which it does not support clusters.
    ray_constants.ENABLE_RAY_CLUSTER = False
    _reload_ray_constants()
    try:
        yield
    finally:
        for name in TOKEN_VARIABLES:
            os.environ.pop(name, None)
        os.environ |= {name: value for name, value in before.items() if value is not None}
        ray_constants.ENABLE_RAY_CLUSTER = cluster
        _reload_ray_constants()


def _reload_ray_constants() -> None:
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def patient_start() -> Iterator[None]:
    """While the block runs, Ray waits ``NODE_START_TIMEOUT`` seconds for the node it starts."""
    get_node = services.get_node
    limit = time.monotonic() + NODE_START_TIMEOUT

    def wait(*node: Any) -> Any:
        while True:
            try:
                return get_node(*node)
            except RuntimeError:  # the node has not registered yet
                if time.monotonic() > limit:
                    raise
                time.sleep(0.2)

    services.get_node = wait
    try:
        yield
    finally:
        services.get_node = get_node
