"""Fake training in small steps with a checkpoint after each, which records concurrent workers.

Imports hardly anything, so that its workers start at once.
"""

import json
import math
import os
import sys
import time
from functools import partial
from pathlib import Path

from scalesearch.studies.executors.worker import finish_job

STEP = 0.05  # seconds


def score(config):
    """Grows with size; the same for the same architecture."""
    size = config["width"] * math.sqrt(config["depth"]) * (
        1.2 if config["kind"] == "gated" else 1.0)
    return 40 * (1 - math.exp(-size / 60))


def loss(config, share):
    """Loss at a share of a full training run."""
    return (50 - score(config)) / 10 / share**0.1


def alive(pid):
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def note(folder, name, **facts):
    """Add a line to a log in the candidate's folder."""
    with (folder / name).open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), "time": time.time(), **facts}) + "\n")


def results(study):
    """Number of results of the study, final and at rungs."""
    return sum(len(list(study.glob(f"trials/*/{name}"))) for name in ("result.json", "rung-*.json"))


def wait_for_leave(study):
    """Wait until the study has fewer results than the file ``pace`` allows, if there is one.

    Orphans do not wait.
    """
    parent = os.getppid()
    while os.getppid() == parent != 1:
        try:
            most = float((study / "pace").read_text())
        except OSError:
            return
        if results(study) < most:
            return
        time.sleep(STEP)


def train(folder, job, seconds=0.0):
    """Continue from the checkpoint to ``until_share``.

    A full run takes ``seconds``, or those of the job's key ``sleep``.
    """
    seconds = job.get("sleep", seconds)
    checkpoint = folder / "checkpoint"
    busy = folder / "busy"
    if busy.exists() and alive(int(busy.read_text())):
        note(folder, "overlaps", other=busy.read_text())
    busy.write_text(str(os.getpid()))
    done = json.loads(checkpoint.read_text()) if checkpoint.exists() else 0.0
    note(folder, "training_runs", rung=job.get("rung"), start=done)
    while done < job.get("until_share", 1.0):
        time.sleep(min(STEP, seconds))
        done = min(job.get("until_share", 1.0), done + STEP / max(seconds, STEP))
        part = folder / "checkpoint.part"
        part.write_text(json.dumps(done))
        os.replace(part, checkpoint)
    wait_for_leave(folder.parent.parent)
    busy.unlink()
    config = json.loads((folder / "architecture.yaml").read_text())
    if "until_share" in job:
        return {"state": "paused",
                "metrics": {"validation_loss": loss(config, done), "share": done, "step": 1}}
    return {"state": "complete", "metrics": {"bleu": score(config), "loss": loss(config, 1.0)},
            "seconds": 0.01}


def work(folder, seconds=0.0):
    """Entry point of a worker."""
    finish_job(Path(folder), partial(train, seconds=seconds))


if __name__ == "__main__":
    work(sys.argv[1])
