"""One system in a process of its own: trains and decodes for ``run.py``, by requests in lines of JSON.

    python worker.py MODULE JOB

``MODULE`` has a class ``System``, made from ``JOB`` (a JSON object). The request ``{"do": "train",
"seconds": s}`` returns target tokens and the CPU-seconds of updates; ``{"do": "decode",
"beam": k}`` sentences, generated tokens and CPU-seconds; ``{"do": "peak"}`` the most
memory since the last such request, in MiB. Needs only the standard library, so that it runs in any
toolkit's environment.
"""

import importlib
import json
import os
import re
import sys
import time
import traceback
from pathlib import Path
from typing import Any


def train(system: Any, seconds: float) -> dict[str, float]:
    """Updates for ``seconds`` of CPU time."""
    tokens = updates = 0
    start = time.process_time()
    while (cpu := time.process_time() - start) < seconds:
        tokens += system.update()
        updates += 1
    return {"tokens": tokens, "updates": updates, "cpu": cpu}


def decode(system: Any, beam: int) -> dict[str, float]:
    """One batch of the job's sentences, each to exactly the job's length."""
    start = time.process_time()
    lengths = system.decode(beam)
    cpu = time.process_time() - start
    return {"sentences": len(lengths), "tokens": sum(lengths), "cpu": cpu}


def peak() -> dict[str, float]:
    """The high-water mark of resident memory, which is then set back to what is resident now (Linux)."""
    status = Path("/proc/self/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    Path("/proc/self/clear_refs").write_text("5")
    return {"mib": int(match.group(1)) / 1024 if match else 0.0}


def reply(system: Any, ask: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to a request; errors as a traceback."""
    try:
        if ask["do"] == "train":
            return train(system, ask["seconds"])
        return decode(system, ask["beam"]) if ask["do"] == "decode" else peak()
    except Exception:
        return {"error": traceback.format_exc()}


def main() -> None:
    # Toolkits write logs to standard output, which is for replies here.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.path.insert(0, str(Path(__file__).parent))
    system = importlib.import_module(sys.argv[1]).System(json.loads(sys.argv[2]))
    print(json.dumps({"ready": True}), file=out)
    for line in sys.stdin:
        print(json.dumps(reply(system, json.loads(line))), file=out)


if __name__ == "__main__":
    main()
