"""Parts of the tests in processes of their own, as in ``make test``: ``python -m tests.parts``.

Each process runs a part of the folders, because one process would keep everything that all of them
import and compile. The packages that most tests need are imported once, before the processes are
forked. The figures of a part are the CPU seconds and the peak memory of its process.

Options are those of pytest, for example ``--instances-seed 3``.
"""

import gc
import importlib
import os
import resource
import sys
import tempfile
from typing import IO, Any

import pytest

# Folders and files of each part, below tests. Tests that load the same packages are together; the
# aim is at most 700 MB per process. All other folders are in the last part.
PARTS = (("export/huggingface",), ("export", "tools", "pareto", "tasks"),
         ("report", "studies/results", "spaces"), ("cli",), ("studies", "api"),
         ("training", "data", "analysis"), ("export/test_onnx.py", "benchmarks"), ("nn",), ())
SHARED_PACKAGES = ("tests.conftest", "torch", "torch._dynamo", "scipy.stats", "scipy.optimize",
                   "pandas", "matplotlib.figure", "optuna", "hypothesis", "scalesearch.cli.main",
                   "scalesearch.nn", "scalesearch.training", "scalesearch.samplers.hypervolume_gp",
                   "scalesearch.studies.optuna_sync.export", "scalesearch.studies.results.results")


def part_of(path: str) -> int:
    """Return the number of the part of a file below tests; the longest prefix decides."""
    lengths = {len(prefix): number for number, prefixes in enumerate(PARTS, 1)
               for prefix in prefixes if f"{path}/".startswith(f"{prefix}/")}
    return lengths[max(lengths)] if lengths else len(PARTS)


def main(options: list[str]) -> int:
    """Run all parts, as many at a time as there are cores; return 0 if no test failed."""
    for name in SHARED_PACKAGES:
        importlib.import_module(name)
    gc.freeze()
    waiting = list(range(1, len(PARTS) + 1))
    running: dict[int, tuple[int, IO[bytes]]] = {}
    is_failed = False
    while waiting or running:
        while waiting and len(running) < len(os.sched_getaffinity(0)):
            part = waiting.pop(0)
            output = tempfile.TemporaryFile()  # noqa: SIM115  # read when the part has ended
            sys.stdout.flush()
            process = os.fork()
            if process == 0:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                sys.exit(pytest.main(["--fast", "--part", str(part), *options]))
            running[process] = part, output
        process, status, usage = os.wait4(-1, 0)
        part, output = running.pop(process)
        output.seek(0)
        print(output.read().decode(errors="replace"), end="")
        print(f"part {part}: {describe(usage)}", flush=True)
        is_failed |= os.waitstatus_to_exitcode(status) not in (pytest.ExitCode.OK,
                                                               pytest.ExitCode.NO_TESTS_COLLECTED)
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"shared imports: {describe(own)}\nall parts: {describe(children)} at most")
    return int(is_failed)


def describe(usage: Any) -> str:
    """Return CPU time and peak memory of a process in words."""
    return f"{usage.ru_utime + usage.ru_stime:.0f} CPU seconds, {usage.ru_maxrss / 1024:.0f} MB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
