"""``scalesearch train`` interrupted by signals or a full disk, and resumed exactly."""

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
    """Arguments of the command."""
    settings = [item for key, value in (RECIPE | changes).items()
                for item in ("--set", f"recipe.{key}={value}")]
    return ["train", "transformer", "--data", str(text / "data.yaml"), *SMALL, *settings, "--out",
            str(out), *more]


def start(text: Path, out: Path, *more: str, most: int | None = None,
          **changes: Any) -> subprocess.Popen:
    """Start the command in a new session; ``most`` limits the bytes per file."""
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
    """Exit status and standard error of a process."""
    status, _, err = processes.ended(process)
    return status, err


def stopped(text: Path, out: Path, *more: str, number: int = signal.SIGTERM) -> None:
    """Start training, and stop its session after the first validation."""
    process = start(text, out, *more)
    wait_until(lambda: list(out.glob("snapshots/*.safetensors")), process)
    os.killpg(process.pid, number)
    status, err = ended(process)
    match = re.fullmatch(
        rf"{signal.Signals(number).name}: saved after (\d+) updates in .*; "
        r"continue with --resume\n",
        err,
    )
    assert status == 128 + number and match and 10 <= int(match[1]) < RECIPE["steps"], err


def learned(out: Path) -> dict[str, Any]:
    """Files and results that equal training runs have in common."""
    result = json.loads((out / "result.json").read_text())
    curve = [{k: v for k, v in point.items() if not k.endswith("seconds")}
             for point in result["curve"]]
    return {"weights": (out / "model.safetensors").read_bytes(), "curve": curve,
            "metrics": result["metrics"], "state": result["state"], "steps": result["steps"],
            "tokens": result["tokens"], "notes": result["notes"]}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_resumed_run_equals_uninterrupted_run(text, tmp_path, number) -> None:
    assert ended(start(text, tmp_path / "whole")) == (0, "")
    stopped(text, tmp_path / "parts", number=number)
    assert not (tmp_path / "parts" / "result.json").exists()
    assert ended(start(text, tmp_path / "parts", "--resume")) == (0, "")
    assert learned(tmp_path / "parts") == learned(tmp_path / "whole")


@pytest.mark.full
def test_run_after_sigterm_and_full_disk_equals_uninterrupted_run(text, tmp_path) -> None:
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
        r"Raise the limit .*, then run the command again with --resume: \d+ updates? done\n",
        err), err
    assert (out / "checkpoint.pt").read_bytes() == good
    assert sorted(out.rglob("*")) == kept and not (out / "result.json").exists()
    processes.command(text, *arguments(text, out, "--resume"))
    assert learned(out) == learned(tmp_path / "whole")
