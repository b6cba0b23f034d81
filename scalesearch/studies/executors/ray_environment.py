"""Environment of Ray, set before Ray is imported, and probes of a cluster.

Nothing here imports Ray.

A Ray that a study starts on this machine is private. Ray's documented environment variables do it:
all ports are bound to the loopback interface, each request needs a token, and files are in a folder
of mode 0700::

    TMP/scalesearch-ray-XXXXXXXX/.lock    held by the process that started this Ray
    TMP/scalesearch-ray-XXXXXXXX/ray/     sessions, logs and sockets of Ray

TMP is the folder in ``RAY_TMPDIR``, the system's folder of temporary files (``TMPDIR``), ``/tmp``
or ``/var/tmp``: the first that is writable and in which paths of sockets are short enough.
"""

import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from scalesearch.errors import UserError, error_context, first_line
from scalesearch.files import socket_root

FOLDER_PREFIX = "scalesearch-ray-"
# The longest path of a socket in TMP.
LONGEST_SOCKET_PATH = (f"{FOLDER_PREFIX}12345678/ray/session_2026-12-31_23-59-59_123456_1234567/"
                       "sockets/plasma_store")
PRIVATE_SETTINGS = {
    "RAY_AUTH_MODE": "token",
    # With 0, Ray runs on one machine only and binds its ports to 127.0.0.1, on Linux as well.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
MAX_LINE_LENGTH = 300
COMMON_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # default 15; `resources: {nice: …}` sets it
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the runner hides GPUs itself
    # about 700 characters on the screen; the study reports the crash of the trial
    "RAY_DEDUP_LOGS_SKIP_REGEX": "A worker died or was killed while executing a task",
}


def prepare_environment(address: str | None) -> None:
    """Set Ray's environment variables, for a private Ray if ``address`` is None.

    The token of a cluster is set by the user in ``RAY_AUTH_MODE`` and ``RAY_AUTH_TOKEN_PATH``.

    Raises:
        UserError: Ray was imported before with other settings.
    """
    for name, value in COMMON_SETTINGS.items():
        os.environ.setdefault(name, value)
    if address is not None or PRIVATE_SETTINGS.items() <= os.environ.items():
        return
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():  # the study uses the user's Ray
        return
    if ray is not None:
        raise UserError("resources: Ray was imported before this study, with settings that let "
                        "other machines connect to it. Start the study before `import ray`, or "
                        "call ray.init() yourself", key="resources", code="ray-not-started")
    os.environ |= {**PRIVATE_SETTINGS, "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def private_folder() -> Iterator[Path]:
    """Context in which Ray starts in a new folder.

    Folders of dead processes are removed.

    Raises:
        UserError: no folder of temporary files is writable and has a short path.
    """
    user_folder = os.environ.get("RAY_TMPDIR")
    with error_context("resources"):
        root = socket_root(LONGEST_SOCKET_PATH, *filter(None, [user_folder]))
    for old in Path(root).glob(f"{FOLDER_PREFIX}*/.lock"):
        with suppress(OSError, Timeout):
            if old.parent.lstat().st_uid == os.getuid() and not old.parent.is_symlink():
                with FileLock(old, timeout=0):
                    shutil.rmtree(old.parent, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(dir=root, prefix=FOLDER_PREFIX))
    try:
        with FileLock(folder / ".lock"):
            os.environ["RAY_TMPDIR"] = str(folder)
            yield folder
    finally:
        os.environ.pop("RAY_TMPDIR", None)
        if user_folder is not None:
            os.environ["RAY_TMPDIR"] = user_folder
        shutil.rmtree(folder, ignore_errors=True)


def check_cluster(address: str) -> None:
    """Check that a service listens at ``address``; Ray itself would retry for minutes.

    Raises:
        UserError: no service listens at this host and port.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise no_cluster_error(address, error) from None


def no_cluster_error(address: str, error: BaseException) -> UserError:
    """Return the error of an address where no cluster responds."""
    return UserError(f"ray: no cluster responds at {address}: {first_line(error)}. The address is "
                     "HOST:PORT of the cluster's head, as `ray start --head` prints it, or `auto` "
                     "on a machine that belongs to it", key="ray", code="cluster-unreachable")


def last_error_line(pid: int) -> str:
    """Return the last line that a worker of the private Ray wrote to standard error, or ""."""
    logs = Path(os.environ.get("RAY_TMPDIR", "/nowhere"), "ray", "session_latest", "logs")
    text = "".join(file.read_text("utf-8", "replace") for file in logs.glob(f"worker-*-{pid}.err"))
    # lines that begin so are Ray's own, such as `:job_id:01000000`
    lines = [line.strip() for line in text.splitlines() if line.strip() and line[0] not in ":[*"]
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    return (fatal or lines or [""])[-1][:MAX_LINE_LENGTH]


def is_listening(host: str, port: int, timeout: float = 5.0) -> bool:
    """Whether a service listens at this address."""
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return False
    return True
