"""Measure and check a GPU: speed, studies, correctness (``make gpu``).

    python benchmarks/gpu.py [--out runs/gpu] [--only NAME …] [--minutes 6] [--quick] [--dry-run]

The headline comes first: one table of speeds, and one of goals. Checks whose planned time exceeds
the remaining time are skipped. Writes report.json and report.md. Without a GPU it lists the checks
that it cannot run, and runs the others on the CPU; with --dry-run it runs all of them there, on tiny
sizes. The exit status is 1 if a check fails; each failure has the shortest command that repeats it.
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
from gpu_kit import captured, correctness, studies, timings  # noqa: F401, these register checks
from gpu_kit.headline import goals_table, headline_table
from gpu_kit.kit import CHECKS, Check, Kit, Skipped, Wrong

from scalesearch import __version__
from scalesearch.training.hardware import processor_name

HEADLINE = ("updates_128", "from_space_to_front", "candidates_per_hour", "updates_256",
            "updates_512", "peers_128", "predicted_memory", "peers_512", "peers_256")
ORDER = (*HEADLINE, *(name for name in CHECKS if name not in HEADLINE))


def machine() -> dict[str, Any]:
    """Return versions and devices, to which the figures belong."""
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {"scalesearch": __version__, "torch": torch.__version__, "cuda": torch.version.cuda,
            "gpus": gpus, "cpu": processor_name(), "python": platform.python_version()}


def run(check: Check, kit: Kit, seconds_left: float = math.inf) -> dict[str, Any]:
    """Run a check, unless the time is over; return its result."""
    record = {"name": check.name, "what": check.what, "device": str(kit.device)}
    if not kit.is_dry_run and torch.cuda.device_count() < check.gpus:
        return record | {"state": "skipped",
                         "why": f"needs {check.gpus} "
                         f"GPU{'s' * (check.gpus > 1)}, and there are {torch.cuda.device_count()}"}
    if seconds_left < (0 if kit.quick else check.seconds):
        return record | {"state": "skipped",
                         "why": f"takes about {check.seconds:.0f} s, and {max(0, seconds_left):.0f} "
                         f"s are left; run it with --only {check.name}, or set --minutes"}
    kit.figures = {}
    start = time.perf_counter()
    # A check must not depend on the settings of earlier ones.
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
    """Whether this process cannot use the device any more, for example after a failed kernel."""
    try:
        torch.ones(2, device=device).sum().item()
    except RuntimeError:
        return True
    return False


def markdown(report: dict[str, Any]) -> str:
    """The report as a page."""
    facts = (f"- {name}: {value or 'none'}" for name, value in report["machine"].items())
    lines = ["# Checks and timings of a GPU", "", *facts]
    if any(item["name"] == HEADLINE[0] for item in report["checks"]):
        lines += ["", *summary(report)]
    lines += ["", "| check | device | result | seconds |", "|---|---|---|---:|"]
    for item in report["checks"]:
        state = item["state"]
        result = state if state == "passed" else f"{state}: {item['why'][:300]}"
        lines.append(f"| {item['what']} (`{item['name']}`) | {item['device']} | "
                     f"{' '.join(result.split())} | {item.get('seconds', '')} |")
    for item in report["checks"]:
        if item.get("figures"):
            figures = (f"- {name}: {_said(value)}" for name, value in item["figures"].items())
            lines += ["", f"## {item['name']}", "", *figures]
    return "\n".join(lines) + "\n"


def summary(report: dict[str, Any]) -> list[str]:
    """Return the tables of the headline and of the goals as lines."""
    figures = {item["name"]: item.get("figures", {}) for item in report["checks"]}
    sizes = ("Tiny sizes: the figures have no meaning." if report["quick"] else
             "A 3-3 Transformer on 2,048 tokens per side and update; processes update separate models.")
    return [sizes, "", *headline_table(figures), "", *goals_table(figures)]


def _said(figure: Any) -> str:
    if isinstance(figure, dict):
        return ", ".join(f"{name} {_said(value)}" for name, value in figure.items())
    if isinstance(figure, list):
        return ", ".join(map(_said, figure))
    return f"{figure:.4g}" if isinstance(figure, float) else str(figure)


def main() -> None:
    """Run the checks; see the module."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--quick", action="store_true",
                        help="small sizes and few repeats: whether it runs at all")
    parser.add_argument("--dry-run", action="store_true",
                        help="all checks on the CPU, with tiny sizes")
    parser.add_argument("--only", nargs="+", choices=ORDER, default=list(ORDER), metavar="NAME")
    parser.add_argument("--continue", action="store_true", dest="resumes",
                        help="after what the report in --out has already")
    parser.add_argument("--minutes", type=float, default=6, help="time for all checks (6)")
    options = parser.parse_args()
    start = time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    file = options.out / "report.json"
    checks = json.loads(file.read_text("utf-8"))["checks"] if options.resumes and file.exists() else []
    with tempfile.TemporaryDirectory() as scratch:
        kit = Kit(Path(scratch), options.quick)
        if options.dry_run:
            kit = Kit(Path(scratch), True, torch.device("cpu"), True)
        for name in options.only[len(checks):]:
            left = 60 * options.minutes + start - time.perf_counter()
            checks.append(run(CHECKS[name], kit, left))
            console.print(f"{checks[-1]['state']:8} {name}  {checks[-1].get('why', '')[:160]}",
                          highlight=False)
            report = {"machine": machine(), "quick": kit.quick, "checks": checks}
            file.write_text(json.dumps(report, indent=1), "utf-8")
            (options.out / "report.md").write_text(markdown(report), "utf-8")
            if checks[-1]["state"] == "wrong" and broken(kit.device):
                break
    if len(checks) < len(options.only):
        # This process has lost its device.
        os.execv(sys.executable,
                 [sys.executable, *sys.argv, "--continue", "--minutes", f"{left / 60:.2f}"])
    for line in summary(report):
        print(line)
    console.print(f"{file}, {options.out / 'report.md'}")
    sys.exit(any(item["state"] == "wrong" for item in checks))


if __name__ == "__main__":
    main()
