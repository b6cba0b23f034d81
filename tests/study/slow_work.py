"""Training that takes its time, in small steps with a checkpoint after each, and notes whoever else is at it.

Imports next to nothing, so that a worker of it starts at once.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

from scalesearch.study.executors.worker import finish_job

STEP = 0.05  # seconds


def score(answers):
    """Grows with size; the same for the same architecture."""
    size = answers["width"] * math.sqrt(answers["depth"]) * (
        1.2 if answers["kind"] == "gated" else 1.0)
    return 40 * (1 - math.exp(-size / 60))


def loss(answers, share):
    """At a share of a full training."""
    return (50 - score(answers)) / 10 / share**0.1


def alive(pid):
    """Whether that process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def note(folder, name, **facts):
    """Adds a line to a log of the candidate's."""
    with (folder / name).open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), "time": time.time(), **facts}) + "\n")


def results(study):
    """How many results, of whole trainings and at rungs, the study has."""
    return sum(len(list(study.glob(f"trials/*/{name}"))) for name in ("result.json", "rung-*.json"))


def wait_for_leave(study):
    """While whoever kills has set a pace: until the study has fewer results than that.

    Orphans are not held up.
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


def train(folder, job):
    """Goes on from the checkpoint to ``until``; ``sleep`` is the seconds of a full training."""
    at = folder / "checkpoint"
    busy = folder / "busy"
    if busy.exists() and alive(int(busy.read_text())):
        note(folder, "overlaps", other=busy.read_text())
    busy.write_text(str(os.getpid()))
    done = json.loads(at.read_text()) if at.exists() else 0.0
    note(folder, "trainings", rung=job.get("rung"), start=done)
    while done < job.get("until_share", 1.0):
        time.sleep(min(STEP, job["sleep"]))
        done = min(job.get("until_share", 1.0), done + STEP / max(job["sleep"], STEP))
        part = folder / "checkpoint.part"
        part.write_text(json.dumps(done))
        os.replace(part, at)
    wait_for_leave(folder.parent.parent)
    busy.unlink()
    answers = json.loads((folder / "architecture.yaml").read_text())
    if "until_share" in job:
        return {"state": "paused",
                "metrics": {"validation_loss": loss(answers, done), "share": done, "step": 1}}
    return {"state": "complete", "metrics": {"bleu": score(answers), "loss": loss(answers, 1.0)},
            "seconds": 0.01}


def work(folder):
    """What a worker does."""
    finish_job(Path(folder), train)


if __name__ == "__main__":
    work(sys.argv[1])
