"""``scalesearch train`` as a process of its own, stopped from outside or out of disk: it goes on to the same bits."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.cli.test_train import SMALL
from tests.corpora import write_text
from tests.processes import in_the_background, wait_until

RECIPE = {"steps": 60, "max_tokens": 300, "lr": 1e-3, "beam": 1, "threads": 1, "device": "cpu",
          "dropout": 0.1, "average": "best", "average_count": 2, "validate_every": 10,
          "checkpoint_minutes": 60}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data file, its text, and a cache."""
    folder = tmp_path_factory.mktemp("text")
    write_text(folder, train=120)
    return folder


def arguments(text: Path, out: Path, *more: str, **changes: Any) -> list[str]:
    """Those of the command."""
    settings = [item for key, value in (RECIPE | changes).items()
                for item in ("--set", f"recipe.{key}={value}")]
    return ["train", "transformer", "--data", str(text / "data.yaml"), *SMALL, *settings, "--out",
            str(out), *more]


def start(text: Path, out: Path, *more: str, most: int | None = None,
          **changes: Any) -> subprocess.Popen:
    """The command, in a session of its own; ``most``: bytes that a file may have."""
    command = [sys.executable, "-m", "scalesearch", *arguments(text, out, *more, **changes)]

    def born() -> None:
        in_the_background()
        if most is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    return subprocess.Popen(
        command, env=os.environ | {"XDG_CACHE_HOME": str(text / "cache"), "COLUMNS": "200"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=born)


def ended(process: subprocess.Popen) -> tuple[int, str]:
    """Its exit status, and what it wrote on standard error."""
    status, _, err = processes.ended(process)
    return status, err


def stopped(text: Path, out: Path, *more: str, number: int = signal.SIGTERM) -> None:
    """Starts a training, and stops all processes of its session once it has validated; it says how to go on."""
    process = start(text, out, *more)
    wait_until(lambda: list(out.glob("snapshots/*.safetensors")), process)
    os.killpg(process.pid, number)
    status, err = ended(process)
    found = re.fullmatch(
        rf"{signal.Signals(number).name}: saved after (\d+) updates in .*; continue with --resume\n",
        err)
    assert status == 128 + number and found and 10 <= int(found[1]) < RECIPE["steps"], err


def learned(out: Path) -> dict[str, Any]:
    """What two trainings that are the same have in common."""
    result = json.loads((out / "result.json").read_text())
    curve = [{k: v for k, v in point.items() if not k.endswith("seconds")}
             for point in result["curve"]]
    return {"weights": (out / "model.safetensors").read_bytes(), "curve": curve,
            "metrics": result["metrics"], "state": result["state"], "steps": result["steps"],
            "tokens": result["tokens"], "notes": result["notes"]}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_and_resumed_is_the_uninterrupted_run_to_the_bit(text, tmp_path, number) -> None:
    assert ended(start(text, tmp_path / "whole")) == (0, "")
    stopped(text, tmp_path / "parts", number=number)
    assert not (tmp_path / "parts" / "result.json").exists()
    assert ended(start(text, tmp_path / "parts", "--resume")) == (0, "")
    assert learned(tmp_path / "parts") == learned(tmp_path / "whole")


def test_after_sigterm_and_a_full_disk_it_is_the_uninterrupted_run_to_the_bit(
        text, tmp_path) -> None:
    processes.command(text, *arguments(text, tmp_path / "whole"))
    out = tmp_path / "parts"
    stopped(text, out)
    good = (out / "checkpoint.pt").read_bytes()
    kept = sorted(out.rglob("*"))
    full = start(text, out, "--resume", most=len(good) - 1000, checkpoint_minutes=0)
    status, err = ended(full)
    assert status == 2 and "Traceback" not in err
    assert re.search(
        r"checkpoint\.pt: cannot be written: File too large; the existing file is unchanged\. "
        r"Free space in .*, then run the command again with --resume: \d+ updates were done\n",
        err), err
    assert (out / "checkpoint.pt").read_bytes() == good
    assert sorted(out.rglob("*")) == kept and not (out / "result.json").exists()
    processes.command(text, *arguments(text, out, "--resume"))
    assert learned(out) == learned(tmp_path / "whole")
