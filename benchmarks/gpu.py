"""Check and measure a GPU: correctness, speed, a study (``make gpu``).

    python benchmarks/gpu.py [--out runs/gpu] [--quick] [--only NAME …] [--minutes 10]

Writes report.json and report.md. Without a GPU it lists the checks that it cannot run, and runs
the others on the CPU. The exit status is 1 if a check fails; each failure has the shortest command
that repeats it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent))
from gpu_kit import captured, correctness, studies, timings  # noqa: F401, in order
from gpu_kit.kit import CHECKS, Check, Kit, Skipped, Wrong

from scalesearch import __version__
from scalesearch.training.hardware import processor_name


def machine() -> dict[str, Any]:
    """Return versions and devices, to which the figures belong."""
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {"scalesearch": __version__, "torch": torch.__version__, "cuda": torch.version.cuda,
            "gpus": gpus, "cpu": processor_name(), "python": platform.python_version()}


def run(check: Check, kit: Kit, seconds_left: float = math.inf) -> dict[str, Any]:
    """Run a check, unless the time is over; return its result."""
    record = {"name": check.name, "what": check.what, "device": str(kit.device)}
    if torch.cuda.device_count() < check.gpus:
        return record | {"state": "skipped",
                       "why": f"needs {check.gpus} "
                       f"GPU{'s' * (check.gpus > 1)}, and there are {torch.cuda.device_count()}"}
    if seconds_left <= 0:
        return record | {"state": "skipped",
                       "why": f"no time was left; run it by --only {check.name}, or give --minutes"}
    kit.figures = {}
    start = time.perf_counter()
    # whatever a training before has set: alone, a check finds the same
    torch.set_float32_matmul_precision("highest")
    try:
        kit.figures |= check.run(kit)
        outcome: dict[str, Any] = {"state": "passed"}
    except Skipped as why:
        outcome = {"state": "skipped", "why": str(why)}
    except Exception as error:
        why = str(error) if isinstance(error, Wrong) else "".join(
            traceback.format_exception_only(error)).strip()
        outcome = {"state": "wrong", "why": why,
                 "reproduce": f"python benchmarks/gpu.py --only {check.name}"}
    return record | outcome | {"figures": kit.figures, "seconds": round(time.perf_counter() - start, 2)}


def broken(device: torch.device) -> bool:
    """Whether a fault on the device has made it useless to this process, as a failed assertion of a kernel does."""
    try:
        torch.ones(2, device=device).sum().item()
    except RuntimeError:
        return True
    return False


def markdown(report: dict[str, Any]) -> str:
    """The report as a page."""
    facts = (f"- {name}: {value or 'none'}" for name, value in report["machine"].items())
    lines = ["# Checks and timings of a GPU", "", *facts, "", "| check | device | result | seconds |",
             "|---|---|---|---:|"]
    for item in report["checks"]:
        came = item["state"] if item["state"] == "passed" else f"{item['state']}: {item['why'][:300]}"
        lines.append(f"| {item['what']} (`{item['name']}`) | {item['device']} | "
                     f"{' '.join(came.split())} | {item.get('seconds', '')} |")
    for item in report["checks"]:
        if item.get("figures"):
            figures = (f"- {name}: {_said(value)}" for name, value in item["figures"].items())
            lines += ["", f"## {item['name']}", "", *figures]
    return "\n".join(lines) + "\n"


def _said(figure: Any) -> str:
    if isinstance(figure, dict):
        return ", ".join(f"{name} {_said(value)}" for name, value in figure.items())
    if isinstance(figure, list):
        return ", ".join(map(_said, figure))
    return f"{figure:.4g}" if isinstance(figure, float) else str(figure)


def main() -> None:
    """Runs the checks; see the module."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--quick", action="store_true",
                        help="small sizes and few repeats: whether it runs at all")
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS), metavar="NAME")
    parser.add_argument("--continue", action="store_true", dest="resumes",
                        help="after what the report in --out has already")
    parser.add_argument("--minutes", type=float, default=10,
                        help="no check starts after this time (10)")
    options = parser.parse_args()
    start = time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    file = options.out / "report.json"
    checks = json.loads(file.read_text("utf-8"))["checks"] if options.resumes and file.exists() else []
    with tempfile.TemporaryDirectory() as scratch:
        kit = Kit(Path(scratch), options.quick)
        for name in options.only[len(checks):]:
            left = 60 * options.minutes + start - time.perf_counter()
            checks.append(run(CHECKS[name], kit, left))
            console.print(f"{checks[-1]['state']:8} {name}  {checks[-1].get('why', '')[:160]}",
                          highlight=False)
            report = {"machine": machine(), "quick": options.quick, "checks": checks}
            file.write_text(json.dumps(report, indent=1), "utf-8")
            (options.out / "report.md").write_text(markdown(report), "utf-8")
            if checks[-1]["state"] == "wrong" and broken(kit.device):
                break
    if len(checks) < len(options.only):
        # This process has lost its device.
        os.execv(sys.executable,
                 [sys.executable, *sys.argv, "--continue", "--minutes", f"{left / 60:.2f}"])
    console.print(f"{file}, {options.out / 'report.md'}")
    sys.exit(any(item["state"] == "wrong" for item in checks))


if __name__ == "__main__":
    main()
