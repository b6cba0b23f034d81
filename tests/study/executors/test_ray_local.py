"""A local Ray: access needs its token, and files of dead runtimes are deleted."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scalesearch.errors import UserError
from scalesearch.study.config.sections import Resources
from tests.processes import HANG, wait_until

HELD = ("import sys, filelock; l = filelock.FileLock(sys.argv[1]); l.acquire(); print(flush=True); "
        "sys.stdin.read()")
ASK = """
import sys
from ray._raylet import GcsClient
print(len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=60)))
"""


def children(process):
    """Process ids of ``process`` and its descendants."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(file.parent.name)] = int(file.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    descendants = {process}
    while more := {pid for pid, parent in parents.items() if parent in descendants} - descendants:
        descendants |= more
    return descendants


def sockets_of(process):
    """Sockets of ``process`` and its descendants, as link targets."""
    sockets = set()
    for pid in children(process):
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.add(os.readlink(link))
            except OSError:
                continue
    return sockets


def listening(sockets):
    """Hexadecimal addresses at which ``sockets`` listen."""
    rows = [line.split() for name in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0]
            for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


def ask_for_nodes(address, **environment):
    """Output of another process that lists the nodes."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("RAY_AUTH")}
    done = subprocess.run([sys.executable, "-c", ASK, address], capture_output=True, text=True,
                          timeout=HANG, env={**inherited, "HOME": "/nonexistent", **environment})
    return done.stdout.strip()


@pytest.mark.ray
def test_local_ray_needs_token_and_listens_on_localhost(
        tmp_path, monkeypatch):
    import ray

    from scalesearch.study.executors.ray import RayRunner

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # must be ignored
    before = sockets_of(os.getpid())  # of other tests in this process
    runner = RayRunner(print, 1, Resources())
    try:
        folder = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).parent
        modes = [stat.S_IMODE(place.stat().st_mode)
                 for place in (folder.parent, folder, folder / "auth_token")]
        assert modes == [0o700, 0o700, 0o600]
        assert Path(ray._private.worker._global_node.get_session_dir_path()).is_relative_to(folder)
        mine = listening(sockets_of(os.getpid()) - before)
        assert mine and mine <= {"0100007F", "0000000000000000FFFF00000100007F",
                                 "00000000000000000000000001000000"}
        address = ray.get_runtime_context().gcs_address
        assert ask_for_nodes(address, RAY_AUTH_MODE="token",
                     RAY_AUTH_TOKEN_PATH=str(folder / "auth_token")) == "1"
        assert ask_for_nodes(address, RAY_AUTH_MODE="disabled") == ""
        assert ask_for_nodes(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="a" * 64) == ""
    finally:
        runner.stop()
    assert os.environ["RAY_AUTH_MODE"] == "disabled" and "RAY_AUTH_TOKEN_PATH" not in os.environ
    assert not folder.exists()


def test_folders_of_dead_runtimes_are_deleted(tmp_path):
    pytest.importorskip("ray")
    from scalesearch.study.executors.ray_local import remove_stale_rays

    dead = tmp_path / "ray-dead"
    alive = tmp_path / "ray-alive"
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    agents = []
    for folder in (dead, alive):
        (folder / "r").mkdir(parents=True)
        agents.append(subprocess.Popen([*sleep, f"--session-dir={folder}/r/session"]))
    stranger = subprocess.Popen([*sleep],
                                env={**os.environ, "RAY_AUTH_TOKEN_PATH": str(dead / "auth_token")})
    owner = subprocess.Popen([sys.executable, "-c", HELD, str(alive / ".lock")],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        owner.stdout.readline()
        remove_stale_rays(tmp_path)
        wait_until(lambda: agents[0].poll() is not None)
        assert not dead.exists() and alive.exists()
        assert agents[1].poll() is None and stranger.poll() is None
    finally:
        for process in (*agents, stranger, owner):
            process.kill()
            process.communicate()


def test_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from scalesearch.study.executors import ray_local

    monkeypatch.setattr(ray_local.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(ray_local.tempfile, "tempdir", str(tmp_path))
    foreign = tmp_path / f"scalesearch-{os.getuid()}"
    foreign.mkdir(mode=0o777)
    foreign.chmod(0o777)
    own = ray_local._root()
    assert own != foreign and stat.S_IMODE(own.stat().st_mode) == 0o700
    foreign.rmdir()
    assert ray_local._root() == foreign and stat.S_IMODE(foreign.stat().st_mode) == 0o700


def test_failed_start_leaves_no_files(monkeypatch):
    pytest.importorskip("ray")
    from scalesearch.study.executors import ray_services

    folders = []

    def fail(*_, _temp_dir, **__):
        folders.append(Path(_temp_dir).parent)
        raise RuntimeError("no port is free")

    monkeypatch.setattr(ray_services.ray, "init", fail)
    with pytest.raises(UserError) as error:
        ray_services.connect(None)
    assert error.value.code == "ray-not-started" and len(set(folders)) == 3
    assert not any(folder.exists()
                   for folder in folders) and "RAY_AUTH_TOKEN_PATH" not in os.environ
