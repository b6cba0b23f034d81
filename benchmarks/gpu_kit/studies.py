"""Whole studies on a GPU: from space to front, two candidates on one device, a candidate on two."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpu_kit.kit import Figures, Kit, Wrong, check

SECONDS = 240  # for what is said to take three minutes
SHORT = ("--set", "trials=2", "--set", "recipe.steps=20", "--set", "data.pairs=2000")


def study(kit: Kit, out: str, *changes: str) -> dict[str, Any]:
    """Runs ``studies/gpu.yaml``, and says how it ended.

    Raises :class:`Wrong` where any training failed.
    """
    folder = kit.folder / out
    command = [sys.executable, "-m", "scalesearch", "study", "run", "gpu", "--out", str(folder),
               *changes]
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
    return ended(folder)


def ended(folder: Path) -> dict[str, Any]:
    """Devices and times of a study's trainings.

    Raises :class:`Wrong` where one failed, or none was complete.
    """
    records = [json.loads(file.read_text()) for file in sorted(folder.glob("trials/*/record.json"))]
    if failed := [one["reason"] for one in records if one["state"] != "complete"]:
        raise Wrong(
            f"{len(failed)} of {len(records)} trainings failed, the first with: {failed[0]}")
    if not records:
        raise Wrong("nothing was trained")
    return {"trained": len(records), "devices": sorted({one["device"] for one in records}),
            "wall seconds": [round(one["seconds"], 1) for one in records]}


@check()
def from_space_to_front(kit: Kit) -> Figures:
    """``scalesearch study run gpu``, as it is shipped."""
    return study(kit, "study", *(SHORT if kit.quick else ()))


@check()
def two_on_a_device(kit: Kit) -> Figures:
    """Two candidates share a device at the same time."""
    found = study(kit, "shared", *SHORT, "--set", "recipe.steps=200",
                  "--set", "workers=2", "--set", "resources.gpus_per_trial=0.5")
    events = [json.loads(line)
              for line in (kit.folder / "shared/events.jsonl").read_text().splitlines()]
    began, ended = ([one["time"] for one in events if one["event"] == event]
                    for event in ("started", "ended"))
    if max(began) > min(ended):
        raise Wrong(f"one ended at {min(ended)}, before the other began at {max(began)}")
    return found
