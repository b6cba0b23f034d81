"""GPUs that trials share: which fit together by their predicted memory."""

import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalesearch.data import Corpus
from scalesearch.files import write_json
from scalesearch.library import find_file
from scalesearch.studies.config.reader import read_study
from scalesearch.training import gpus
from scalesearch.training.gpus import (
    Gpu,
    count_places,
    find_gpus,
    gpu_share,
    predict_memory,
    split_cores,
)
from scalesearch.training.memory import PROCESS_BYTES, SAFETY_FACTOR, predict_training_bytes
from scalesearch.training.recipe import Recipe
from tests.processes import wait_until
from tests.training.conftest import recipe, tiny

GIB = 2**30
LISTING = "0, GPU-a, 81559, NVIDIA H100\\n1, GPU-b, 143771, NVIDIA H200\\n"


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which ``nvidia-smi`` lists two GPUs."""
    command = tmp_path / "nvidia-smi"
    command.write_text(f"#!/bin/sh\nprintf '{LISTING}'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.parametrize(("visible", "names"), [
    (None, ["GPU-a", "GPU-b"]), ("1", ["GPU-b"]), ("GPU-b,0", ["GPU-b", "GPU-a"]), ("", [])])
def test_find_gpus_lists_visible_gpus(two_gpus, monkeypatch, visible: str | None,
                                      names: list[str]) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    visible_gpus = find_gpus()
    assert [gpu.name for gpu in visible_gpus] == names
    assert all(gpu.memory in (81559 * 2**20, 143771 * 2**20) for gpu in visible_gpus)


def test_gpu_without_memory_of_its_own_uses_that_of_the_system(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\nprintf '0, GPU-a, [N/A], NVIDIA GB10\\n'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (gpu,) = find_gpus()
    assert gpu.memory == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_machine_without_nvidia_smi_has_no_gpu(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpus() == []


def test_number_of_places_is_limited_by_cores(monkeypatch) -> None:
    monkeypatch.setattr(gpus.os, "sched_getaffinity", lambda pid: set(range(12)))
    assert count_places([Gpu("a", GIB)]) == gpus.MAX_TRIALS_PER_GPU
    assert count_places([Gpu("a", GIB), Gpu("b", GIB)]) == 12


@given(st.lists(st.integers(1, 100 * GIB), max_size=40), st.integers(GIB, 150 * GIB))
def test_trials_that_share_a_gpu_fit_into_its_memory(needs: list[int], memory: int) -> None:
    gpu = Gpu("0", memory)
    for needed in needs:
        if gpu.has_place(needed):
            gpu.reserved.append(needed)
    assert len(gpu.reserved) <= gpus.MAX_TRIALS_PER_GPU
    assert len(gpu.reserved) == 1 or sum(gpu.reserved) <= gpus.USABLE_SHARE * memory
    assert gpu.reserved or not needs  # a trial that needs the whole GPU gets it


def job_folder(folder: Path, how: Recipe, corpus: Corpus) -> Path:
    folder.mkdir()
    (folder / "architecture.yaml").write_text(tiny().to_yaml())
    cache = Path(corpus.spec.train[0]).parent / "cache"
    write_json(folder / "job.json", {"recipe": how.model_dump(), "cache": str(cache),
                                     "data": corpus.spec.model_dump()})
    return folder


def test_memory_of_a_job_is_predicted_from_its_files(tmp_path: Path, corpus) -> None:
    folder = job_folder(tmp_path / "job", recipe(), corpus)
    predicted = predict_training_bytes(tiny().block, corpus, recipe())
    assert predict_memory(folder) == PROCESS_BYTES + math.ceil(SAFETY_FACTOR * predicted)


@pytest.mark.parametrize(("device", "workers", "gpus_per_trial"), [("auto", 2, "auto"),
                                                                  ("cpu", 1, 0.0)])
def test_workers_share_gpus_unless_the_recipe_trains_on_the_cpu(
        two_gpus, monkeypatch, device: str, workers: int, gpus_per_trial: float | str) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus.os, "sched_getaffinity", lambda pid: {0, 1})
    spec = read_study(find_file("quick", "studies"), (f"recipe.device={device}", "workers=auto"))
    assert (spec.workers, spec.resources.gpus_per_trial) == (workers, gpus_per_trial)


def test_teacher_needs_a_whole_gpu(tmp_path: Path) -> None:
    write_json(tmp_path / "job.json", {"teachers": ["runs/teacher"]})
    needed = predict_memory(tmp_path)
    assert Gpu("0", 80 * GIB).has_place(needed)
    assert not Gpu("0", 80 * GIB, reserved=[GIB]).has_place(needed)


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 100])
def test_cores_are_split_without_overlap(monkeypatch, workers: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    parts = split_cores(workers)
    assert len(parts) == workers
    assert sum(map(len, parts)) == len(set().union(*parts)) == 16 // workers * workers


@given(st.lists(st.integers(0, 100 * GIB), max_size=40), st.integers(GIB, 150 * GIB),
       st.sampled_from([1, 2, 4, 8, 16]))
def test_trials_whose_shares_fit_also_fit_into_the_memory(needs: list[int], memory: int,
                                                          limit: int) -> None:
    total = 0.0
    fitting = []
    for needed in needs:
        share = gpu_share(needed, memory, limit)
        if total + share <= 1:
            total += share
            fitting.append(needed)
    assert len(fitting) <= limit
    assert len(fitting) <= 1 or sum(fitting) <= memory
    assert gpu_share(memory, memory, limit) == 1


@pytest.fixture
def mps_daemon(tmp_path: Path, monkeypatch) -> Path:
    """A command that starts and stops a process as MPS does; the file has the process's id."""
    pid_file = tmp_path / "pid"
    command = tmp_path / gpus.MPS_CONTROL
    command.write_text(f"""#!/bin/sh
if [ "$1" = -d ]; then sleep 1000 & echo $! > {pid_file}; exit; fi
read line; [ "$line" = quit ] && [ -d "$CUDA_MPS_PIPE_DIRECTORY" ] && kill $(cat {pid_file})
""")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return pid_file


def is_alive(pid_file: Path) -> bool:
    state = Path(f"/proc/{pid_file.read_text().strip()}/stat")
    return state.exists() and state.read_text().split()[2] != "Z"


def test_mps_has_a_private_pipe_and_is_stopped(mps_daemon: Path, tmp_path: Path,
                                               monkeypatch) -> None:
    long = tmp_path / ("x" * 60)  # no socket fits into it
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with gpus.multi_process_service() as environment:
        pipe = Path(environment["CUDA_MPS_PIPE_DIRECTORY"])
        assert pipe.is_dir()
        assert is_alive(mps_daemon)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(pipe / Path(gpus.MPS_SOCKET).name))
    assert not pipe.exists()
    wait_until(lambda: not is_alive(mps_daemon))


def test_mps_of_a_killed_process_is_stopped(mps_daemon: Path, tmp_path: Path) -> None:
    script = """
import sys, time
from scalesearch.training.gpus import multi_process_service
with multi_process_service() as environment:
    print(environment["CUDA_MPS_PIPE_DIRECTORY"], flush=True)
    time.sleep(1000)
"""
    path = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                          env=os.environ | {"PYTHONPATH": path}) as driver:
        pipe = Path(driver.stdout.readline().strip())
        assert is_alive(mps_daemon)
        driver.kill()
        wait_until(lambda: not pipe.exists())
    wait_until(lambda: not is_alive(mps_daemon))


def test_machine_without_mps_trains_without_it(tmp_path: Path, monkeypatch) -> None:
    for name in ("sh", "timeout", "rm"):
        (tmp_path / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path))
    with gpus.multi_process_service() as environment:
        assert environment == {}
