"""Whole studies on a GPU, from space to front."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from gpu_kit.kit import Figures, Kit, Wrong, architecture, check
from scalesearch.studies.config.sections import Resources
from scalesearch.studies.executors.base import JobDone, TrainingJob
from scalesearch.studies.executors.local import PoolRunner
from scalesearch.studies.executors.worker import train_job

SECONDS = 240  # for what is said to take three minutes
SHORT = ("trials=2", "recipe.steps=20", "data.pairs=2000")


def study(kit: Kit, out: str, *changes: str) -> dict[str, Any]:
    """Run ``studies/gpu.yaml`` with changed keys, and return figures of its trials.

    Raises:
        Wrong: a training run failed.
    """
    folder = kit.folder / out
    command = [sys.executable, "-m", "scalesearch", "study", "run", "gpu", "--out", str(folder)]
    for change in (f"recipe.device={kit.device.type}", *changes):
        command += ["--set", change]
    start = time.perf_counter()
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        error = running.communicate(timeout=SECONDS)[1]
    except subprocess.TimeoutExpired:
        # it stops Ray's workers, which would hold the device else
        running.send_signal(signal.SIGTERM)
        error = f"stopped after {SECONDS} s. {running.communicate(timeout=60)[1]}"
    finally:
        running.kill()
    if running.returncode:
        raise Wrong(f"{' '.join(command[2:])}: exit status {running.returncode}: "
                    f"{error.strip()[-500:]}")
    figures = {**ended(folder), "seconds": round(time.perf_counter() - start, 1)}
    results = [json.loads(file.read_text()) for file in folder.glob("trials/*/result.json")]
    figures["notes"] = sorted({note for result in results for note in result["notes"]})
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    began = time.time() - (time.perf_counter() - start)
    for name in ("started", "ended"):
        moments = [datetime.fromisoformat(event["time"]).timestamp() - began
                   for event in events if event["type"] == name]
        figures[f"{name} at"] = [round(moment, 1) for moment in moments]
    figures["efforts"] = [result["efforts"] for result in results[:3]]
    return figures


def ended(folder: Path) -> dict[str, Any]:
    """Return devices and times of the training runs of a study.

    Raises:
        Wrong: one failed, or none was complete.
    """
    records = [json.loads(file.read_text()) for file in sorted(folder.glob("trials/*/record.json"))]
    if failed := [record["reason"] for record in records if record["state"] != "complete"]:
        raise Wrong(
            f"{len(failed)} of {len(records)} training runs failed, the first with: {failed[0]}")
    if not records:
        raise Wrong("nothing was trained")
    return {"trained": len(records), "devices": sorted({record["device"] for record in records}),
            "wall seconds": [round(record["seconds"], 1) for record in records]}


def train_and_note_start(folder: str) -> None:
    """Train the job in ``folder``, and note when its process received it."""
    (Path(folder) / "received").write_text(str(time.time()))
    train_job(folder, keeps_corpora=True)


@check(gpus=0, seconds=30)
def start_up(kit: Kit) -> Figures:
    """Seconds from the submission of a job to its first update, in new and in kept processes."""
    assert kit.folder is not None
    corpus = kit.corpus
    recipe = kit.recipe(steps=2, validate_every=2)
    for name, trials_per_process in (("new process", 1), ("kept process", 99)):
        resources = Resources(trials_per_process=trials_per_process,
                              gpus_per_trial=float(kit.device.type == "cuda"))
        runner = PoolRunner(train_and_note_start, 1, resources)
        seconds = []
        try:
            for number in range(2 if kit.quick else 6):
                folder = kit.folder / f"{name} {number}"
                folder.mkdir()
                (folder / "architecture.yaml").write_text(architecture("small/plain").to_yaml())
                job = {"data": corpus.spec.model_dump(), "cache": str(kit.folder), "seed": number,
                       "threads": 1, "recipe": recipe.model_dump()}
                (folder / "job.json").write_text(json.dumps(job))
                start = time.time()
                runner.submit(TrainingJob(number, folder))
                while not (events := runner.poll(SECONDS)):
                    pass
                if not isinstance(events[0], JobDone):
                    raise Wrong(str(events[0]))
                received = float((folder / "received").read_text())
                phases = json.loads((folder / "result.json").read_text())["phases"]
                seconds.append(round(received - start + phases["start"], 2))
        finally:
            runner.stop()
        # the first process waits for the server of processes, which imports PyTorch
        kit.figures |= {f"{name}, seconds": seconds,
                        f"{name}, median without the first": statistics.median(seconds[1:])}
    return kit.figures


@check(seconds=60)
def from_space_to_front(kit: Kit) -> Figures:
    """``scalesearch study run gpu``, as it is shipped."""
    return study(kit, "study", *(SHORT if kit.quick else ()))


@check(seconds=70)
def candidates_per_hour(kit: Kit) -> Figures:
    """Candidates of 2,400 updates of 1,024 tokens per GPU-hour, everything included."""
    trials = 2 if kit.quick else 16
    start = time.perf_counter()
    figures = study(kit, "hour", *(SHORT if kit.quick else (
        f"trials={trials}", "recipe.steps=2400", "recipe.max_tokens=1024",
        "recipe.optimizer=adamw")))
    seconds = time.perf_counter() - start
    return {**figures, "seconds": round(seconds, 1),
            "candidates per hour": round(3600 * trials / seconds)}
