"""Overhead of the driver of a study: seconds per trial, and utilization of 64 workers.

    python benchmarks/driver_overhead.py [--workers 64] [--trials 500] [--seconds 60]

The driver is real: a space of Transformers under a budget, sampler, event log and records with
their syncs to disk, Optuna's copy. Workers are simulated. A full-budget run takes --seconds on
average, times a factor of 0.7 to 1.3 per candidate. The clock advances by the time of the driver,
and jumps to the next end of a run when the driver waits. A worker is idle from the end of a run
until its next start. Times are counted from the first end of a run to the last start of a run.
With --clock own the CPU time of the driver and its waits for the disk count instead of wall time,
for machines with other load.
"""

import argparse
import heapq
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from scalesearch.files import write_json
from scalesearch.schedule import NO_RUNGS, Rungs
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.engine.corpora import load_corpora
from scalesearch.studies.engine.driver import Driver
from scalesearch.studies.engine.setup import (
    build_sampler,
    make_evaluator,
    open_study,
    study_facts,
)
from scalesearch.studies.executors.base import JobDone, JobEvent, Runner, TrainingJob
from scalesearch.studies.optuna_sync.attributes import TrialExporter
from scalesearch.studies.optuna_sync.export import open_export

STUDY = """
study: overhead
data: { builtin: grammar, pairs: 2000, vocab: 1000 }
recipe: { steps: 1000 }
objectives: { bleu: max, params.total: min, macs.total: min }
protocol: { name: forward, source: 30, target: 30, vocab: 8000 }
budget: params.total <= 20M and macs.total <= 600M
space:
  space: overhead
  width: 128..512 step 64
  norm: post | pre
  encoder:
    depth: 1..8
    heads: 2 | 4 | 8
    head_dim: 16 | 32 | 64
    ffn:
      one of:
        relu: { hidden: 256..2048 step 128 }
        geglu: { hidden: 256..2048 step 128 }
        none: {}
  decoder:
    depth: 1..6
    heads: 2 | 4 | 8
    head_dim: 16 | 32 | 64
    ffn: { relu: { hidden: 256..2048 step 128 } }
  share: { encoder.ffn: own | one, decoder.ffn: own | one }
  where: [ decoder.depth <= encoder.depth ]
"""


class Simulated(Runner):
    """Workers on a clock of their own."""

    def __init__(self, slots: int, seconds: float, rungs: Rungs, real: "Clock") -> None:
        self.slots = slots
        self._seconds = seconds
        self._rungs = rungs
        self._real = real
        self._ahead = 0.0  # simulated seconds that were jumped over
        self._ends: list[tuple[float, int, TrainingJob, float]] = []
        self._free: list[float] = []  # when a worker became free
        self.thinking = 0.0
        self.idle = 0.0
        self.worst = 0.0
        self.starts = 0
        # when a job started: the clock, idle so far, thinking so far
        self.marks: list[tuple[float, float, float]] = []
        self._polled = real()

    def clock(self) -> float:
        """Simulated seconds."""
        return self._real() + self._ahead

    def submit(self, job: TrainingJob) -> None:
        """A free worker begins."""
        now = self.clock()
        took = self._takes(job)
        if self._free:
            waited = now - heapq.heappop(self._free)
            self.idle, self.worst = self.idle + waited, max(self.worst, waited)
        heapq.heappush(self._ends, (now + took, self.starts, job, took))
        self.starts += 1
        self.marks.append((now, self.idle, self.thinking + self._real() - self._polled))

    def poll(self, timeout: float) -> list[JobEvent]:
        """Return the runs that ended meanwhile, or else the next that ends."""
        self.thinking += self._real() - self._polled
        self._ahead += max(0.0, self._ends[0][0] - self.clock())
        events: list[JobEvent] = []
        now = self.clock()
        while self._ends and self._ends[0][0] <= now:
            end, _, job, _ = heapq.heappop(self._ends)
            heapq.heappush(self._free, end)
            leave(job, self._rungs)
            events.append(JobDone(job))
        self._ahead -= self.clock() - now  # what the workers wrote costs the driver nothing
        self._polled = self._real()
        return events

    def stop(self, grace: float = 10.0) -> None:
        """Nothing runs."""

    def _takes(self, job: TrainingJob) -> float:
        job_file = json.loads((job.folder / "job.json").read_text())
        rung = job_file.get("rung", self._rungs.n_pauses)
        rng = np.random.default_rng(job.trial)
        return float(self._seconds * rng.uniform(0.7, 1.3) * self._rungs.budget_to_rung(rung))


def leave(job: TrainingJob, rungs: Rungs) -> None:
    """Write a result: the loss falls with the size of the candidate and with training."""
    job_file = json.loads((job.folder / "job.json").read_text())
    quality = float(np.random.default_rng(job.trial).normal(25 + job.trial % 40 / 8, 1.0))
    share = job_file.get("until", 1.0)
    metrics = {"bleu": quality, "validation_loss": (60 - quality) / 10 / share**0.1, "share": share}
    state, name = ("paused", f"rung-{job_file['rung']}.json") if "rung" in job_file else (
        "complete", "result.json")
    curve = [{"step": step, "train_loss": 4.0, "validation_loss": 3.5, "seconds": 1.0}
             for step in range(0, 2000, 100)]
    write_json(job.folder / name,
               {"state": state, "metrics": metrics, "seconds": 60.0, "curve": curve})


class Clock:
    """Seconds: wall time, or of a busy machine what the driver itself takes: CPU time and waits for the disk."""

    def __init__(self, kind: str) -> None:
        self.synced = 0.0
        self._wall = kind == "wall"
        self._fsync = os.fsync
        os.fsync = self._sync  # type: ignore[assignment]

    def __call__(self) -> float:
        return time.monotonic() if self._wall else time.process_time() + self.synced

    def _sync(self, handle: int) -> None:
        wall = time.monotonic()
        cpu = time.process_time()
        self._fsync(handle)
        self.synced += time.monotonic() - wall - (time.process_time() - cpu)


def measure(folder: Path, kind: str, rungs: Rungs, options: argparse.Namespace,
            clock: Clock) -> Simulated:
    """A study run to its end in a new folder."""
    (folder / "overhead.yaml").write_text(STUDY)
    file = read_study(folder / "overhead.yaml", (f"trials={options.trials}", f"sampler={kind}"))
    spec = file.replace(rungs=rungs, out=folder / "study")
    corpora = load_corpora(spec)
    evaluator = make_evaluator(spec, corpora)
    study = open_study(spec, evaluator, study_facts(spec, corpora, evaluator, None))
    runner = Simulated(options.workers, options.seconds, rungs, clock)
    export = open_export(spec.storage, study, TrialExporter(spec.space, spec.objectives), print)
    Driver(spec, study, evaluator, build_sampler(spec, evaluator), runner, export).run()
    return runner


def row(runner: Simulated, options: argparse.Namespace) -> str:
    """The figures of one study."""
    first = runner.marks[options.workers]
    last = runner.marks[-1]
    span = last[0] - first[0]
    if not span:
        return "too few starts after the first end of a run; use more --trials"
    starts = len(runner.marks) - options.workers
    idle = last[1] - first[1]
    thought = last[2] - first[2]
    full = options.trials * (1 - options.workers / len(runner.marks))
    return (f"{starts:8} {thought / starts:12.3f} {thought / full:12.3f} "
            f"{thought / full / options.seconds:9.2%} {1 - idle / (span * options.workers):9.2%} "
            f"{runner.worst:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clock", choices=["wall", "own"], default="wall")
    parser.add_argument("--samplers", nargs="+", default=["local", "tpe"])
    parser.add_argument("--rungs", choices=["off", "on", "both"], default="both")
    options = parser.parse_args()
    clock = Clock(options.clock)
    both = [NO_RUNGS, Rungs.geometric()]
    ladders = {"off": both[:1], "on": both[1:], "both": both}[options.rungs]
    print(f"{options.workers} simulated workers, {options.trials} full-budget runs of {options.seconds:g} "
          "s\n")
    print(f"{'':14} {'starts':>8} {'s a start':>12} {'s a trial':>12} {'of 60 s':>9} {'busy':>9} "
          f"{'longest s':>10}")
    for kind in options.samplers:
        for rungs in ladders:
            with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
                runner = measure(Path(folder), kind, rungs, options, clock)
            print(f"{kind + (', rungs' if rungs.n_pauses else ''):14} {row(runner, options)}",
                  flush=True)


if __name__ == "__main__":
    main()
