"""Replays searches on tables of Transformers that were really trained: how soon is the front found?

    python benchmarks/replay.py --seeds 20 --ends 5 10 20 40
    python benchmarks/replay.py --tables FOLDER --seeds 20 --compute 40 --plot replay --json
    replay.json

Tables: our own (own_tables.py), unless a FOLDER of published ones is given (nmt_tables.py). Printed
is the regret, the share of the table's best hypervolume of (BLEU or the goal of its study, params)
that a search has not found, in per cent, as mean and standard error over seeds. ``--ends``: of
searches that end after so many full trainings, know that, and are charged as a study charges them,
a training alike whatever its size. ``--compute``: along one endless search, after so much compute
(updates times params, or CPU-seconds, in units of the table's mean full training) and after so many
candidates begun. `plain` are Optuna's samplers as they are, over every combination of the options
as ordinals, told unlisted combinations as infeasible; no search is charged for those, nor for
proposing what it has. `cheapest` goes by params. ``--anchor TOOL PYTHON`` adds a search of another
tool, by an interpreter that has it.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import own_tables
from nmt_tables import read
from numpy.typing import NDArray
from peers.table_search import ANCHORS, TITLES, regrets
from replay_plot import draw
from tabular import Replay, Table, Trace

from scalesearch.errors import UserError
from scalesearch.files import write_atomic
from scalesearch.pareto.objective import Objective
from scalesearch.samplers import SAMPLER_NAMES, SamplerSpec
from scalesearch.samplers.trial_history import is_complete
from scalesearch.schedule.rungs import Rungs

FULL = Rungs()
LADDER = Rungs.geometric()
SEARCHES = {
    "plain random": ("random", FULL), "plain tpe": ("tpe", FULL), "plain nsga2": ("nsga2", FULL),
    "plain gp": ("gp", FULL),
    "cheapest": (None, FULL), "cheapest + rungs": (None, LADDER),
    **{name: (name, FULL) for name in ("grid", "local", "bayes")},
    **{f"{name} + rungs": (name, LADDER) for name in SAMPLER_NAMES},
}
USUAL = ("plain random", "cheapest", "plain tpe", "plain nsga2", "bayes", "random + rungs",
         "cheapest + rungs", "tpe + rungs", "nsga2 + rungs", "bayes + rungs")
YARDSTICK = "plain tpe"
NEARLY = (0.95, 0.99)  # of the best hypervolume
MARKS = (5, 10, 20, 40, 80, 160)


@dataclass(frozen=True)
class Search:
    """One way to search: its traces, one a seed."""

    name: str
    traces: list[Trace]

    def regrets(self, column: str,
                at: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """(seeds, places) regret in per cent where a trace's ``column`` has come to each of ``at``."""
        return np.array([[100 * (1 - _volume(trace, getattr(trace, column), place)) for place in at]
                         for trace in self.traces])


def _volume(trace: Trace, column: Any, at: float) -> float:
    reached = np.searchsorted(column, at * (1 + 1e-9), side="right")
    return float(trace.hypervolume[reached - 1]) if reached else 0.0


def at_ends(table: Table, given: argparse.Namespace, ends: list[int]) -> None:
    """Prints the regret of every search that ends after so many full trainings."""
    print(f"  {'':16}", *(f"{end:>14}" for end in ends))
    for name in given.searches:
        kind, rungs = SEARCHES[name]
        show_line(name,
                  np.array([[_left(Replay(table, kind and SamplerSpec(kind, {}, seed), rungs,
                                          given.workers).run(trials=end)) for end in ends]
                            for seed in seeds_of(given)]))
    for anchor, python in given.anchor:
        show_line(TITLES[anchor],
                  regrets(table, LADDER.shares, anchor, python, seeds_of(given), ends))


def foretold(table: Table, given: argparse.Namespace, ends: list[int]) -> None:
    """Prints how often the gain of --forecast further trainings was inside the forecast's 90 % interval."""
    for name in given.searches:
        kind, rungs = SEARCHES[name]
        lines = [line for seed in seeds_of(given)
                 for end in ends
                 if (line := _forecast(Replay(table, SamplerSpec(kind, {}, seed), rungs), end,
                                       given.forecast))]
        if lines:
            low, mean, high, real = np.array(lines).T
            inside = ((low <= real) & (real <= high)).mean()
            print(f"  {name:16} {len(lines)} forecasts: {inside:.0%} inside, "
                  f"{(real > high).mean():.0%} above, {(real < low).mean():.0%} below; mean "
                  f"foretold {mean.mean():.1%}, real {real.mean():.1%}", flush=True)


def _forecast(search: Replay, end: int, further: int) -> tuple[float, float, float, float] | None:
    """Low, mean, high and what came of it, from ``end`` full trainings on; None where nothing is foretold."""
    search.run(trials=end)
    sampler: Any = search.study.sampler
    foretold = sampler.forecast_gain(search.trials, further)
    found = sampler.acquisition_after(search.trials)
    if foretold is None:
        return None
    gains = found[0].improvement
    search.run(trials=end + further)
    values = np.array([trial.values for trial in search.trials if is_complete(trial)])
    signs = np.array([one.sign for one in search.table.objectives])
    real = gains.relative_growth((values * signs)[:, gains.measured], values[:, ~gains.measured])
    return foretold.low, foretold.mean, foretold.high, real


def seeds_of(given: argparse.Namespace) -> range:
    """The seeds that were asked for."""
    return range(given.first_seed, given.first_seed + given.seeds)


def _left(trace: Trace) -> float:
    return 100 * (1 - float(trace.hypervolume[-1])) if len(trace.hypervolume) else 100.0


def show_line(name: str, regrets: NDArray[np.float64]) -> None:
    """Prints mean and standard error of (seeds, places)."""
    errors = regrets.std(0, ddof=1) / np.sqrt(len(regrets)) if len(regrets) > 1 else np.zeros(
        regrets.shape[1])
    cells = [f"{mean:.2f} ± {error:.2f}" for mean, error in zip(regrets.mean(0), errors)]
    print(f"  {name:16}", *(f"{cell:>14}" for cell in cells), flush=True)


def searches(table: Table, names: list[str], seeds: range, workers: int, compute: float,
             priced: bool) -> Iterator[Search]:
    """Every search of ``names`` with every seed, until ``compute`` mean full trainings are spent.

    ``priced``: it is told what each training took, as in a study with a limit of CPU time.
    """
    mean = float(np.mean([row.compute for row in table.rows]))
    for name in names:
        kind, rungs = SEARCHES[name]
        traces = []
        for seed in seeds:
            replay = Replay(table, kind and SamplerSpec(kind, {}, seed), rungs, workers,
                            priced=priced)
            found = replay.run(compute=compute * mean)
            traces.append(Trace(found.compute / mean, found.hypervolume, found.ended,
                                found.started))
        yield Search(name, traces)


def show(found: list[Search], column: str, marks: list[int]) -> None:
    """Prints mean and standard error of every search at every mark."""
    print(f"  {'':16}", *(f"{mark:>14}" for mark in marks))
    for search in found:
        show_line(search.name, search.regrets(column, marks))


def show_nearly(found: list[Search], rows: int, share: float) -> None:
    """Prints the compute to ``share`` of the best hypervolume: mean over seeds, if all came there."""
    print(f"  compute to {share:.0%} of the table's best hypervolume, in full trainings")
    yard = next((_to(search, share) for search in found if search.name == YARDSTICK), [])
    for search in found:
        came = _to(search, share)
        if len(came) < len(search.traces):
            half = len(search.traces) // 2
            median = f", median {sorted(came)[half]:.1f}" if len(came) > half else ""
            print(
                f"  {search.name:16} {len(came)} of {len(search.traces)} seeds came there{median}")
            continue
        error = np.std(came, ddof=1) / np.sqrt(len(came)) if len(came) > 1 else 0.0
        all_did = len(yard) == len(search.traces)
        against = (f", {np.mean(yard) / np.mean(came):.2f} times less than {YARDSTICK}" if all_did
                   else "")
        print(f"  {search.name:16} {np.mean(came):6.1f} ± {error:.1f} = {np.mean(came) / rows:.1%} "
              f"of the table's, worst seed {max(came) / rows:.1%}{against}")


def _to(search: Search, share: float) -> list[float]:
    """Compute until ``share`` of the best hypervolume, of each seed that came there."""
    return [float(trace.compute[int(np.argmax(trace.hypervolume >= share))])
            for trace in search.traces if (trace.hypervolume >= share).any()]


def show_ratios(found: list[Search], marks: list[int]) -> None:
    """Prints the compute to the regret that plain TPE has at each mark, as a share of the mark."""
    yard = next((search for search in found if search.name == YARDSTICK), None)
    if yard is None:
        return
    print(f"  compute to the mean regret that {YARDSTICK} has at so many full trainings, as a "
          "share of its own")
    places = np.geomspace(0.05, marks[-1], 400)
    for search in found:
        mean = search.regrets("compute", places).mean(0)
        cells = []
        for mark, goal in zip(marks, yard.regrets("compute", marks).mean(0)):
            there = np.flatnonzero(mean <= goal + 1e-9)
            cells.append(f"{places[there[0]] / mark:.2f}" if len(there) else "never")
        print(f"  {search.name:16}", *(f"{cell:>14}" for cell in cells))


def replay(file: Path, given: argparse.Namespace) -> list[Search]:
    """Runs and prints every search on the table in ``file``."""
    table, said = _table(file, given)
    names = ", ".join(objective.name for objective in table.objectives)
    print(f"\n{file.stem}: {len(table.rows)} models{said}, objectives {names}, {given.seeds} "
          f"seeds, from {given.first_seed}, {given.workers} workers; its front has {table.front} "
          f"models, the best of which has {table.share:.0%} of the hypervolume", flush=True)
    if given.ends:
        print("  regret in % of searches that end after so many full trainings")
        (foretold if given.forecast else at_ends)(table, given, given.ends)
        return []
    found = list(searches(table, given.searches, seeds_of(given), given.workers, given.compute,
                          given.priced))
    marks = [mark for mark in MARKS if mark <= given.compute] or [max(1, int(given.compute))]
    print("  regret in % after compute of so many full trainings")
    show(found, "compute", marks)
    print("  regret in % after so many evaluations (candidates begun)")
    show(found, "begun", marks)
    show_ratios(found, [mark for mark in marks if mark >= 20] or marks)
    for share in NEARLY:
        show_nearly(found, len(table.rows), share)
    return found


def _table(file: Path, given: argparse.Namespace) -> tuple[Table, str]:
    """The table in ``file``, and what is to be said of it."""
    if own_tables.is_own(file):
        costs = [f"{cost}.total" for cost in given.costs]
        return own_tables.read(file, costs, given.compute_in), f" ({given.compute_in})"
    rungs = any(SEARCHES[name][1].n_pauses for name in given.searches)
    bleu = Objective("bleu", "max", True)
    table, without = read(file, (bleu, *(Objective(cost, "min", False) for cost in given.costs)),
                          rungs)
    return table, f" ({without} left out: repeated, or without a curve)" if without else ""


def as_json(tables: dict[str, list[Search]]) -> str:
    """Every trace."""
    kept = [{"table": name, "search": search.name, "seed": seed, "compute": trace.compute.tolist(),
             "volume": trace.hypervolume.tolist(), "ended": trace.ended.tolist(),
             "begun": trace.started.tolist()} for name, found in tables.items()
            for search in found for seed, trace in enumerate(search.traces, 1)]
    return json.dumps(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, default=own_tables.FOLDER,
                        help="a folder of tables, or one .csv")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1,
                        help="those from 1 to 10 were used to choose by")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--ends", type=int, nargs="+", metavar="TRAININGS",
                        help="full trainings that searches have")
    parser.add_argument(
        "--forecast", type=int, default=0, metavar="TRAININGS",
        help="with --ends: from there, is the gain of so many more inside its interval?")
    parser.add_argument("--anchor", nargs=2, action="append", default=[],
                        metavar=("TOOL", "PYTHON"),
                        help=f"with --ends: {', '.join(ANCHORS)}, and an interpreter that has it")
    parser.add_argument("--compute", type=float, default=80.0,
                        help="full trainings' worth of compute")
    parser.add_argument("--priced", action="store_true",
                        help="tell searches what each training took")
    parser.add_argument(
        "--costs", nargs="+", default=["params"], choices=["params", "macs", "seconds"],
        help="the other goals: params, macs (own tables), seconds (published tables)")
    parser.add_argument("--compute-in", default="cpu", choices=own_tables.COMPUTE,
                        help="of own tables: cpu or macs")
    parser.add_argument("--searches", nargs="+", default=list(USUAL), choices=SEARCHES)
    parser.add_argument("--plot", type=Path, metavar="STEM", help="draw STEM.png and STEM.svg")
    parser.add_argument("--json", type=Path, help="write every trace here")
    given = parser.parse_args()
    try:
        files = sorted(given.tables.glob("*.csv")) if given.tables.is_dir() else [given.tables]
        if not files:
            raise UserError(f"{given.tables}: there is no table, NAME.csv, in this folder",
                            code="no-table")
        tables = {file.stem: replay(file, given) for file in files}
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    if given.json:
        write_atomic(given.json, lambda file: file.write(as_json(tables).encode()))
    if given.plot:
        draw(tables, " and ".join(given.costs), given.compute, given.plot)


if __name__ == "__main__":
    main()
