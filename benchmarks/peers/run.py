"""Training and decoding speed and memory, scalesearch against toolkits, in turns: the same pieces, sizes and batches.

    python benchmarks/peers/run.py --data FILE --peers-python PATH [--systems A,B] [--rounds 5]
    [--seconds 8] [--json]

Each system is a process of its own with one thread, and all wait while one works. A toolkit is run
by the interpreter ``--peers-python`` through its own model, loss, optimizer, batching and search
(``peer_*.py`` say what had to be done to make it start). Speeds are target tokens, or sentences, a
CPU-second: the median of the rounds, after one to warm up. Ratios are to the fastest toolkit, which
for training excludes nn.Transformer loops and for decoding CTranslate2, which is also listed.
Decoding starts from first weights and is made to say exactly as many tokens as it has read.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
# Name: module, precision, whether it trains. A toolkit without a choice of precision has fp32.
SYSTEMS = {
    "scalesearch-fp32": ("scalesearch_system", "fp32", True), "scalesearch-bf16": ("scalesearch_system", "bf16", True),
    "fairseq": ("peer_fairseq", "fp32", True), "opennmt-py": ("peer_opennmt", "fp32", True),
    "joeynmt": ("peer_joeynmt", "fp32", True),
    "ctranslate2-fp32": ("peer_ctranslate2", "float32", False),
    "ctranslate2-int8": ("peer_ctranslate2", "int8_float32", False),
}  # fmt: skip
TOOLKITS = ("fairseq", "opennmt-py", "joeynmt")
MEASURES = {"train": "training tokens", "greedy": "greedy sentences", "beam": "beam-5 sentences"}


@dataclass
class System:
    """A worker process and its replies: speeds by measure, peaks in MiB by phase, or why it does not run."""

    name: str
    process: Any
    speeds: dict[str,
                 list[float]] = field(default_factory=lambda: {measure: [] for measure in MEASURES})
    peaks: dict[str, float] = field(default_factory=dict)
    error: str = ""

    @classmethod
    def start(cls, name: str, job: dict[str, Any], peers: str) -> "System":
        module, precision, _ = SYSTEMS[name]
        python = sys.executable if module == "scalesearch_system" else peers
        job = json.dumps(job | {"precision": precision})
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
                                    "CUDA_VISIBLE_DEVICES": ""}
        log = open(Path(json.loads(job)["folder"], f"{name}.log"), "w")  # noqa: SIM115
        process = subprocess.Popen([python, str(HERE / "worker.py"), module, job],
                                   stdin=subprocess.PIPE, text=True, stdout=subprocess.PIPE,
                                   stderr=log, env=environment)
        system = cls(name, process)
        system._read()
        return system

    def ask(self, **question: Any) -> dict[str, Any]:
        """Return the worker's reply; empty after a failure."""
        if self.error:
            return {}
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        reply: dict[str, Any] = json.loads(line) if line else {"error": "it ended; see its log"}
        self.error = str(reply.get("error", ""))
        return {} if self.error else reply

    def train(self, seconds: float, warm: bool) -> None:
        """One round of updates."""
        reply = self.ask(do="train", seconds=seconds)
        if reply and warm:
            self.speeds["train"].append(reply["tokens"] / reply["cpu"])

    def decode(self, beam: int, warm: bool, length: int) -> None:
        """One batch of translations.

        Raises:
            SystemExit: they are not of the length that was asked for.
        """
        reply = self.ask(do="decode", beam=beam)
        if reply and abs(reply["tokens"] / reply["sentences"] - length) > 1:
            sys.exit(f"{self.name}: {reply['tokens'] / reply['sentences']:.1f} tokens per sentence, "
                     f"not {length}")
        if reply and warm:
            self.speeds["greedy" if beam == 1 else "beam"].append(reply["sentences"] / reply["cpu"])

    def speed(self, measure: str) -> float | None:
        """The median of the rounds."""
        return statistics.median(self.speeds[measure]) if self.speeds[measure] else None


def measure(systems: list[System], options: argparse.Namespace) -> None:
    """All rounds, one system after the other in each; then the peaks of each phase."""
    for turn in range(options.rounds + 1):
        for system in systems:
            if SYSTEMS[system.name][2]:
                system.train(options.seconds if turn else 0.01, turn > 0)
    for system in systems:
        system.peaks["train"] = system.ask(do="peak").get("mib", 0.0) if SYSTEMS[
            system.name][2] else 0.0
    for turn in range(options.decode_rounds + 1):
        for system in systems:
            for beam in (1, 5) if turn else (1,):
                system.decode(beam, turn > 0, options.length)
    for system in systems:
        system.peaks["decode"] = system.ask(do="peak").get("mib", 0.0)


def summary(systems: list[System]) -> list[dict[str, Any]]:
    """A row a system: speeds, ratios to the best toolkit, peaks."""
    rows = []
    for system in systems:
        row: dict[str, Any] = {"system": system.name,
                               "error": system.error.strip().splitlines()[-1:]}
        for name in MEASURES:
            best = max((other.speed(name) or 0 for other in systems if other.name in TOOLKITS),
                       default=0)
            speed = system.speed(name)
            spread = [min(system.speeds[name]), max(system.speeds[name])] if speed else None
            row[name] = {"speed": speed, "spread": spread,
                         "ratio": speed / best if speed and best else None}
        rows.append(row | {"peak_mib": system.peaks})
    return rows


def show(rows: list[dict[str, Any]], title: str) -> None:
    """The table."""
    table = Table(title=title, box=None)
    table.add_column("system")
    for words in MEASURES.values():
        table.add_column(f"{words} / CPU s", justify="right")
        table.add_column("ratio", justify="right")
    for words in ("train MiB", "decode MiB"):
        table.add_column(words, justify="right")
    for row in rows:
        cells = [_cell(row[name][key], form) for name in MEASURES
                 for key, form in (("speed", ",.4g"), ("ratio", ".2f"))]
        cells += [_cell(row["peak_mib"].get(phase), ",.0f") for phase in ("train", "decode")]
        table.add_row(row["system"], *cells)
    Console(width=140).print(table)
    for row in rows:
        if row["error"]:
            print(f"{row['system']} does not run: {row['error'][0]}")


def _cell(value: float | None, form: str) -> str:
    return format(value, form) if value else "-"


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="builtin", help="a data file, or builtin")
    parser.add_argument("--peers-python", default=sys.executable,
                        help="the interpreter that has the toolkits")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    for name, value in (("width", 256), ("depth", 3), ("heads", 4), ("hidden", 1024),
                        ("max-tokens", 4096), ("rounds", 5), ("decode-rounds", 3), ("length", 30),
                        ("batch", 64), ("sentences", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seconds", type=float, default=8.0,
                        help="of CPU time a round of training")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument(
        "--inner-dropout", action=argparse.BooleanOptionalAction, default=True,
        help="drop attention weights and activations too (JoeyNMT always drops both)")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    with tempfile.TemporaryDirectory() as folder:
        job = vars(options) | {"folder": folder}
        os.environ["OMP_NUM_THREADS"] = "1"
        from prepare import prepare

        params = prepare(job)
        systems = [System.start(name, job, options.peers_python) for name in options.systems.split(",")]
        try:
            measure(systems, options)
        finally:
            for system in systems:
                system.process.stdin.close()
                system.process.wait()
        for system in systems:
            if system.error:
                print(system.error, Path(folder, f"{system.name}.log").read_text()[-1500:],
                      file=sys.stderr)
    rows = summary(systems)
    title = (f"{options.depth}-{options.depth} layers, width {options.width}, FFN {options.hidden}, "
             f"{params / 1e6:.1f} M params; {options.max_tokens} tokens per batch, dropout "
             f"{options.dropout:g}; {options.batch} x {options.length} tokens out")
    print(json.dumps({"setting": title, "systems": rows})) if options.json else show(rows, title)


if __name__ == "__main__":
    main()
