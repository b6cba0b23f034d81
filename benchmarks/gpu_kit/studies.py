"""Whole studies on a GPU: from space to front, two candidates on one device, a candidate on two."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpu_kit.kit import Figures, Kit, Wrong, check

SHORT = ("--set", "trials=2", "--set", "recipe.steps=20", "--set", "data.pairs=2000")


def study(kit: Kit, out: str, *changes: str) -> dict[str, Any]:
    """Runs ``studies/gpu.yaml``, and says how it ended. Raises :class:`Wrong`."""
    folder = kit.folder / out
    command = [sys.executable, "-m", "scalesearch", "study", "run", "gpu", "--out", str(folder), *changes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580)
    if done.returncode:
        raise Wrong(f"{' '.join(command[2:])}: exit status {done.returncode}: {done.stderr.strip()[-500:]}")
    records = [json.loads(file.read_text()) for file in Path(folder).glob("trials/*/result.json")]
    return {"trained": len(records), "devices": sorted({one["device"] for one in records}),
            "wall seconds": [round(one["seconds"], 1) for one in records]}


@check()
def from_space_to_front(kit: Kit) -> Figures:
    """``scalesearch study run gpu``, as it is shipped."""
    return study(kit, "study", *(SHORT if kit.quick else ()))


@check()
def two_on_a_device(kit: Kit) -> Figures:
    """Two candidates share a device through Ray."""
    return study(kit, "shared", *SHORT, "--set", "backend=ray", "--set", "workers=2", "--set",
                 "resources.gpus_per_trial=0.5")


@check(gpus=2)
def one_on_two_devices(kit: Kit) -> Figures:
    """Two processes with a GPU each share a candidate's updates, by NCCL."""
    return study(kit, "nccl", *SHORT, "--set", "resources.processes_per_trial=2", "--set", "resources.gpus_per_trial=1",
                 "--set", "backend=ray")
