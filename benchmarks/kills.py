"""Long kill test: kill a study repeatedly, and list what was lost.

    PYTHONPATH=. python benchmarks/kills.py [--seed 1] [--folder FOLDER] [--kept]

Run at the root of a checkout. One study of the tests' space (training is a sleep in small steps,
with checkpoints), with rungs and two workers; more than fifty kills -9, by process id, of a worker,
the driver, Ray's raylet, Ray's control service (gcs_server), of a node of a cluster with all that
runs on it, and of all processes at once; and stops by SIGSTOP for some seconds. Two thirds of them
are under Ray, the others are under the pool of processes. Every result that
was on disk at a kill must be there unchanged at the end, must be recorded once, and must not have
been trained again. "Driver down" are drivers that ended though they were not hit; "back after" is
the time until the log continued, median and most; "orphans gone" that until a dead driver's were.
With ``--kept``, twelve kills hit the pool while its processes train several trials each.
"""

import argparse
import random
import tempfile
from pathlib import Path

from tests.studies.kills import (
    ALL,
    CLUSTER,
    CONTROL,
    DRIVER,
    KEPT,
    NODE,
    POOL,
    RAY,
    RAYLET,
    WORKER,
    Killed,
    check,
    plan_of,
    summary,
)

BY_RAY = {WORKER: 10, RAYLET: 5, CONTROL: 5, "worker stopped": 10, "driver stopped": 5,
          "raylet stopped": 3, DRIVER: 2, ALL: 2}
BY_CLUSTER = {NODE: 8, WORKER: 2, DRIVER: 1}
BY_KEPT = {WORKER: 6, "worker stopped": 2, DRIVER: 2, ALL: 2}
BY_POOL = {WORKER: 12, "worker stopped": 4, "driver stopped": 2, DRIVER: 5, ALL: 4}


def fifty(folder: Path, seed: int) -> Killed:
    """A study of two workers and rungs, with more than fifty kills under Ray and some under the pool around them."""
    rng = random.Random(seed)
    plain, ray, cluster = (plan_of(kinds, backend, rng) for kinds, backend in (
        (BY_POOL, POOL), (BY_RAY, RAY), (BY_CLUSTER, CLUSTER)))
    cut = len(plain) // 2
    return Killed(folder, [*plain[:cut], *ray, *cluster, *plain[cut:]], 34, 3.0, seed=seed)


def twelve_with_kept_processes(folder: Path, seed: int) -> Killed:
    """A study of two workers and rungs, whose processes train up to five trials each."""
    return Killed(folder, plan_of(BY_KEPT, KEPT, random.Random(seed)), 12, 2.0, seed=seed)


def main() -> None:
    """Run the study; see the module."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--kept", action="store_true", help="only the pool, with kept processes")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    make = twelve_with_kept_processes if options.kept else fifty
    killed = make(folder / "study", options.seed)
    try:
        reason = killed.run()
    finally:
        print(summary(killed.kills))
    trials = check(killed)
    print(f"In the end: {reason}; {len(trials)} proposals, every result recorded once")


if __name__ == "__main__":
    main()
