"""CPU-seconds and memory of the commands that read a study, and of a proposal.

``python benchmarks/load.py [TRIALS …]`` creates studies of n trials (4, 1,000, 5,000 and 20,000
unless given) in a temporary folder and prints a table: the report of those up to 1,000, status and
front of the larger, and a proposal. ``--proposals SPACE …`` prints only what a proposal costs in
each of the spaces, after 50 to 20,000 trials unless TRIALS are given. Trials are drawn from
``spaces/edge.yaml``, or those spaces, with their costs; their scores are invented. Over half are
finished, with records as large as real ones are; the others are infeasible or duplicates. Verbs run
in processes of their own, with Python's bytecode cached as by an installation.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import msgspec
from tabulate import tabulate

from scalesearch.cost import load_protocol
from scalesearch.feasible.limits import collect_limits
from scalesearch.library import find_file
from scalesearch.samplers import SamplerSpec, make_sampler
from scalesearch.spaces import read_space
from scalesearch.studies.config.objectives import parse_objective
from scalesearch.studies.optuna_sync.search_study import SearchStudy
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.event_log import encode_event, utc_now
from scalesearch.studies.trials.record import make_record
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.study_meta import DataFacts, StudyMeta
from scalesearch.studies.trials.trial import State, Trial
from scalesearch.training.result import Result

OBJECTIVES = (parse_objective("bleu", "max"), parse_objective("params.total", "min"),
              parse_objective("macs.total", "min"))
COUNTS = (4, 1_000, 5_000, 20_000)
REPORTED = 1_000  # trials; those up to which the report is made
PROPOSED = (50, 200, 1_000, 5_000, 20_000)  # numbers of trials for --proposals
N_PROPOSALS = 5  # proposals of which the median is shown
N_ARCHITECTURES = 400  # different architectures: their numbers are what counts here
CURVE = [{"step": step, "tokens": step * 4000, "cpu_seconds": 1.5 * step, "seconds": 0.5 * step,
          "lr": 1e-3, "train_loss": 4.0, "validation_loss": 3.5, "bleu": None}
         for step in range(0, 2000, 100)]


def load_evaluator(name: str = "edge") -> Evaluator:
    """The evaluator of a shipped space under its own limits."""
    space = read_space(find_file(name, "spaces"))
    return Evaluator(space, load_protocol({**space.protocol, "vocab": 8000}),
                     collect_limits(space, None))


def make(folder: Path, count: int, trials: list[Trial], evaluator: Evaluator) -> None:
    """Writes a study of ``count`` trials into ``folder``."""
    meta = StudyMeta(id="load", name="load", created=utc_now(), space_hash="s",
                     protocol=evaluator.protocol.facts, objectives=OBJECTIVES, recipe={}, seed=1,
                     data=DataFacts("none", "0"), synthetic=True, total_trials=count, limits=(),
                     bounds={}, versions={})
    study = StudyDir(folder)
    rng = random.Random(1)
    lines = list[bytes]()
    study.create(meta, evaluator.space.to_yaml())

    def log(**event: object) -> None:
        lines.append(encode_event({"line": len(lines) + 1, "time": utc_now(), **event}))

    for number in range(count):
        trial = trials[number % len(trials)].replace(number=number, architecture=f"{number:012x}")
        ends = trial.is_feasible and number % 3 != 0
        state = (State.PENDING if ends else State.INFEASIBLE if not trial.is_feasible
                 else State.DUPLICATE)
        log(type="proposed", **msgspec.to_builtins(trial.replace(state=state)))
        if not ends:
            continue
        bleu = 30 - 1e7 / trial.costs["params.total"] + rng.gauss(0, 1)
        end = {"state": State.COMPLETE, "wall_seconds": 900.0,
               "values": {objective.name: bleu if objective.is_measured
                          else float(trial.costs[objective.name])
                          for objective in OBJECTIVES}}
        log(type="started", trial=number, attempt=1)
        log(type="ended", trial=number, **end)
        result = Result("complete", metrics={"bleu": bleu, "split": "validation"}, curve=CURVE,
                        total_seconds=900.0)
        place = study.trial_folder(trial)
        place.mkdir(parents=True)
        (place / "record.json").write_text(
            json.dumps(make_record(trial.replace(**end), meta.record_fields, result)))
    study.log.file.write_bytes(b"".join(lines))


def cost_of(cache: str, *arguments: str) -> tuple[float, float]:
    """(CPU-seconds, MiB at most) of a command in a process of its own; ``cache``: folder of its bytecode."""
    code = ("import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], "
            "stdout=subprocess.DEVNULL); used = resource.getrusage(resource.RUSAGE_CHILDREN); "
            "print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, done.returncode)")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": cache}
    output = subprocess.run([sys.executable, "-c", code, sys.executable, "-m", "scalesearch",
                           *arguments], check=True, capture_output=True, text=True,
                          env=environment).stdout.split()
    assert output[2] == "0", arguments
    return float(output[0]), float(output[1])


def proposal(folder: Path, evaluator: Evaluator) -> tuple[float, float]:
    """(CPU-seconds, MiB at most of this process) of a proposal of ``bayes``, the study being open.

    The median of ASKED, after two that fill the caches.
    """
    trials = StudyDir(folder).load().trials
    search = SearchStudy(evaluator.space, OBJECTIVES, trials)
    sampler = make_sampler(SamplerSpec("bayes"), evaluator.suggest_params,
                           partial(evaluator.candidate_facts, objectives=OBJECTIVES),
                           evaluator.feasible_region, OBJECTIVES)
    seconds = []
    for _ in range(2 + N_PROPOSALS):
        start = time.process_time()
        search.ask(sampler)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds[2:]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def sample_trials(evaluator: Evaluator) -> list[Trial]:
    """Return random trials of a space, with their costs."""
    rng = random.Random(0)
    trials = [evaluator.evaluate(evaluator.space.sample(rng).params)
              for _ in range(N_ARCHITECTURES)]
    return [trial for trial in trials if trial.costs]


def proposals(names: list[str], counts: list[int]) -> None:
    """Prints what a proposal costs in each space, after each number of trials."""
    rows = []
    for name in names:
        evaluator = load_evaluator(name)
        cells = []
        trials = sample_trials(evaluator)
        for count in counts:
            with tempfile.TemporaryDirectory() as where:
                make(Path(where) / "load", count, trials, evaluator)
                cells.append(proposal(Path(where) / "load", evaluator)[0])
        rows.append((name, *cells))
    print(tabulate(rows, ["CPU-seconds a proposal after", *(f"{count:,}" for count in counts)],
                   tablefmt="github", floatfmt=".2f"))


def main(counts: list[int]) -> None:
    """Prints the table of a space's studies."""
    evaluator = load_evaluator()
    rows = []
    trials = sample_trials(evaluator)
    for count in counts:
        with tempfile.TemporaryDirectory() as where:
            make(Path(where) / "load", count, trials, evaluator)
            for verb in ("report",) if count <= REPORTED else ("status", "front"):
                run = partial(cost_of, f"{where}/bytecode", "study", verb, f"{where}/load")
                run()  # fills the cache
                rows.append((f"{count:,}", f"study {verb}", *run()))
            if count != COUNTS[0]:
                rows.append((f"{count:,}", "a proposal of bayes",
                             *proposal(Path(where) / "load", evaluator)))
    print(tabulate(rows, ["trials", "what", "CPU-seconds", "MiB"], tablefmt="github",
                   disable_numparse=[0], floatfmt=("", "", ".2f", ".0f"),
                   colalign=("right", "left", "right", "right")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", nargs="*", type=int, metavar="TRIALS")
    parser.add_argument("--proposals", nargs="+", metavar="SPACE")
    options = parser.parse_args()
    if options.proposals:
        proposals(options.proposals, options.counts or list(PROPOSED))
    else:
        main(options.counts or list(COUNTS))
