"""A PostgreSQL server for tests, if its programs are installed; it listens on a Unix socket."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

USERS = ("postgres", "nobody")  # PostgreSQL refuses to run as root
QUICK = "-c listen_addresses='' -c fsync=off -c full_page_writes=off -c max_connections=20"


class Server:
    """A cluster of databases in ``folder`` with one database, ``studies``, of the user ``ann``."""

    def __init__(self, programs: Path, folder: Path, user: str | None) -> None:
        self._programs = programs
        self._folder = folder
        self._user = user
        self._run("initdb", "-A", "trust", "-U", "ann", "-E", "UTF8", "--locale=C", "--no-sync")
        self.start()
        self._run("createdb", "-h", str(folder), "-U", "ann", "studies", data=False)

    @property
    def url(self) -> str:
        """URL of the database, with a password, which the server ignores."""
        return f"postgresql://ann:secret@/studies?host={self._folder}"

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        self._run("pg_ctl", "start", "-w", "-t", "60", "-l", str(self._folder / "log"), "-o",
                  f"-k {self._folder} {QUICK}")

    def stop(self) -> None:
        """Stop the server and end every connection."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate")

    def _run(self, program: str, *arguments: str, data: bool = True) -> None:
        data_options = ["-D", str(self._folder / "data")] if data else []
        command = [str(self._programs / program), *data_options, *arguments]
        if self._user:
            command = ["setpriv", f"--reuid={self._user}",
                       f"--regid={pwd.getpwnam(self._user).pw_gid}", "--clear-groups", "--",
                       *command]
        done = subprocess.run(command, cwd=self._folder, env={**os.environ, "LC_ALL": "C"},
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


def programs() -> Path | None:
    """The folder of PostgreSQL's programs."""
    initdb = shutil.which("initdb")
    folders = [Path(initdb).resolve().parent] if initdb else sorted(
        Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "postgres").exists()), None)


@contextmanager
def running() -> Iterator[Server]:
    """Start a server for the block; skip the test if PostgreSQL cannot run."""
    pytest.importorskip("psycopg", reason="psycopg is not installed (the extra `postgres`)")
    folder_of_programs = programs()
    if folder_of_programs is None:
        pytest.skip("PostgreSQL's programs (initdb, pg_ctl, postgres) are not installed")
    user = None
    if os.getuid() == 0:
        user = next((name for name in USERS if name in {entry.pw_name for entry in pwd.getpwall()}),
                    None)
        if user is None or not shutil.which("setpriv"):
            pytest.skip("PostgreSQL does not run as root, and another user or setpriv is missing")
    # not tmp_path: others may not enter it, and sockets need short paths
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        if user:
            shutil.chown(folder, user)
        server = Server(folder_of_programs, folder, user)
        try:
            yield server
        finally:
            if (folder / "data" / "postmaster.pid").exists():
                server.stop()
    finally:
        shutil.rmtree(folder)
