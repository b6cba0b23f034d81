"""A Ray that this process starts for itself: nobody else can use it, and what dead ones have left is swept.

::

    TMP/scalesearch-UID/        0700, since Ray makes its own folders open to all
      ray-XXXXXXXX/.lock        held by the process whose Ray it is
      ray-XXXXXXXX/auth_token   0600; whoever has it can run code in this Ray
      ray-XXXXXXXX/r/           Ray's sessions and sockets, whose paths must be short

Every request needs the token (since Ray 2.52), and all ports are bound to the loopback.
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

# seconds that a busy machine may take to start a node, of which Ray itself waits 30
NODE_START_TIMEOUT = 120.0
TOKEN_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@contextmanager
def private_ray_folder() -> Iterator[str]:
    """A stretch in which Ray may be started in the folder that is given, for this process alone."""
    with ExitStack() as stack:
        folder = stack.enter_context(_locked_folder(_root()))
        token = os.open(folder / "auth_token", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(token, "w") as file:
            file.write(secrets.token_hex(32))
        stack.enter_context(_environment(folder / "auth_token"))
        yield str(folder / "r")


def _root() -> Path:
    """The folder of this user's Rays; where somebody else has made it, a new one."""
    root = Path(tempfile.gettempdir()) / f"scalesearch-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    found = root.lstat()
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return root if own else Path(tempfile.mkdtemp(prefix="scalesearch-"))


@contextmanager
def _locked_folder(root: Path) -> Iterator[Path]:
    """A new folder that is this process's; it is gone afterwards, and so are those of processes that have died."""
    with FileLock(root / ".lock"):  # nobody sweeps what is made and not yet locked
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
    """Ends the processes and removes the folders that Rays of dead processes have left."""
    for folder in root.glob("ray-*"):
        with suppress(OSError, Timeout), FileLock(folder / ".lock", timeout=0):
            for process in _stale_processes(folder):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)


def _stale_processes(folder: Path) -> list[int]:
    """Ray's processes that work in ``folder``, by their command lines; a worker's title is in place of its own."""
    inside = os.fsencode(folder / "r")
    token = b"RAY_AUTH_TOKEN_PATH=" + os.fsencode(folder / "auth_token") + b"\0"
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            command = (place / "cmdline").read_bytes()
            if inside in command or (command.startswith(b"ray::")
                                     and token in (place / "environ").read_bytes()):
                found.append(int(place.name))
    return found


@contextmanager
def _environment(token: Path) -> Iterator[None]:
    """A stretch in which Ray, which has read its environment already, starts with this token and on the loopback."""
    before = {name: os.environ.pop(name, None) for name in TOKEN_VARIABLES}
    cluster = ray_constants.ENABLE_RAY_CLUSTER
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    # what Ray itself does on systems where it knows no clusters
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
    """A stretch in which Ray waits ``SLOW`` seconds for the node that it starts."""
    asked = services.get_node
    limit = time.monotonic() + NODE_START_TIMEOUT

    def wait(*node: Any) -> Any:
        while True:
            try:
                return asked(*node)
            except RuntimeError:  # it has not registered yet
                if time.monotonic() > limit:
                    raise
                time.sleep(0.2)

    services.get_node = wait
    try:
        yield
    finally:
        services.get_node = asked
