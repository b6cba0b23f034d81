"""Replay searches on tables of trained Transformers, to measure how soon they find the front.

    python benchmarks/replay.py --seeds 20 --ends 5 10 20 40
    python benchmarks/replay.py --tables FOLDER --seeds 20 --compute 40 --plot replay
        --json replay.json

The tables are those of own_tables.py, or a FOLDER of published ones (nmt_tables.py). The output is
the regret as mean and standard error over seeds: the share of the table's best hypervolume that a
search has not found, in per cent.

``--ends``: each search ends after n full-budget runs with this end known. A run counts the same for
all sizes, as in a study. ``--compute``: regret along one search without an end, per compute and per
candidate started. Compute is updates times params, or CPU-seconds, in units of the table's mean
full-budget run.

`plain` samplers are Optuna's own, over all combinations of the options as ordinals; combinations
without a row are infeasible. They cost nothing, and neither do repeated proposals. `cheapest`
proceeds by params. ``--anchor TOOL PYTHON`` adds a search of another tool, in an interpreter that
has it.
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
from synthetic_tables import TYPES, make_table
from tabular import Replay, Table, Trace

from scalesearch.errors import UserError
from scalesearch.files import write_atomic
from scalesearch.pareto import Objective
from scalesearch.samplers import SAMPLER_NAMES, SamplerSpec
from scalesearch.samplers.trial_history import is_complete
from scalesearch.schedule import Rungs

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
    """A search, with one trace per seed."""

    name: str
    traces: list[Trace]

    def regrets(self, column: str,
                positions: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the regret in per cent, (seeds, positions), at positions of a column."""
        return np.array([[100 * (1 - _volume(trace, getattr(trace, column), place)) for place in positions]
                         for trace in self.traces])


def _volume(trace: Trace, column: Any, positions: float) -> float:
    reached = np.searchsorted(column, positions * (1 + 1e-9), side="right")
    return float(trace.hypervolume[reached - 1]) if reached else 0.0


def print_regrets_at_ends(table: Table, options: argparse.Namespace, ends: list[int]) -> None:
    """Print the regret of every search that ends after n full-budget runs."""
    print(f"  {'':16}", *(f"{end:>14}" for end in ends))
    for name in options.searches:
        kind, rungs = SEARCHES[name]
        show_line(name,
                  np.array([[_left(Replay(table, kind and SamplerSpec(kind, {}, seed), rungs,
                                          options.workers).run(trials=end)) for end in ends]
                            for seed in seeds_of(options)]))
    for anchor, python in options.anchor:
        show_line(TITLES[anchor],
                  regrets(table, LADDER.shares, anchor, python, seeds_of(options), ends))


def print_forecasts(table: Table, options: argparse.Namespace, ends: list[int]) -> None:
    """Print regrets, and how often the gain of further runs was in the forecast's 90 % interval.

    One search per seed continues from each end to the next.
    """
    marks = sorted({*ends, *(end + options.forecast for end in ends)})
    print(f"  {'':16}", *(f"{mark:>14}" for mark in marks))
    for name in options.searches:
        kind, rungs = SEARCHES[name]
        lines = []
        regrets = []
        for seed in seeds_of(options):
            search = Replay(table, SamplerSpec(kind, {}, seed), rungs, options.workers)
            regret_by_mark = {}
            for end in sorted(ends):
                regret_by_mark[end] = _left(search.run(trials=end))
                line = _forecast(search, options.forecast)
                regret_by_mark[end + options.forecast] = _left(
                    search.run(trials=end + options.forecast))
                if line:
                    low, mean, high, improvement = line
                    lines.append((low, mean, high, _real_growth(search, improvement)))
            regrets.append([regret_by_mark[mark] for mark in marks])
        show_line(name, np.array(regrets))
        if lines:
            low, mean, high, real = np.array(lines).T
            inside = ((low <= real) & (real <= high)).mean()
            print(f"  {name:16} {len(lines)} forecasts: {inside:.0%} inside, "
                  f"{(real > high).mean():.0%} above, {(real < low).mean():.0%} below; mean "
                  f"predicted {mean.mean():.1%}, real {real.mean():.1%}", flush=True)


def _forecast(search: Replay, further: int) -> tuple[float, float, float, Any] | None:
    """Return low, mean, high, and the improvement to measure real growth; None: no forecast."""
    sampler: Any = search.study.sampler
    forecast = sampler.forecast_gain(search.trials, further)
    if forecast is None:
        return None
    acquisition, _ = sampler.acquisition_after(search.trials)
    return forecast.low, forecast.mean, forecast.high, acquisition.improvement


def _real_growth(search: Replay, improvement: Any) -> float:
    """Return the growth of the hypervolume since ``improvement``."""
    values = np.array([trial.values for trial in search.trials if is_complete(trial)])
    signs = np.array([objective.sign for objective in search.table.objectives])
    return float(improvement.relative_growth((values * signs)[:, improvement.measured],
                                             values[:, ~improvement.measured]))


def seeds_of(options: argparse.Namespace) -> range:
    """Return the range of seeds."""
    return range(options.first_seed, options.first_seed + options.seeds)


def _left(trace: Trace) -> float:
    return 100 * (1 - float(trace.hypervolume[-1])) if len(trace.hypervolume) else 100.0


def show_line(name: str, regrets: NDArray[np.float64]) -> None:
    """Print mean and standard error of regrets (seeds, positions)."""
    errors = regrets.std(0, ddof=1) / np.sqrt(len(regrets)) if len(regrets) > 1 else np.zeros(
        regrets.shape[1])
    cells = [f"{mean:.2f} ± {error:.2f}" for mean, error in zip(regrets.mean(0), errors)]
    print(f"  {name:16}", *(f"{cell:>14}" for cell in cells), flush=True)


def searches(table: Table, names: list[str], seeds: range, workers: int, compute: float,
             observes_compute: bool) -> Iterator[Search]:
    """Yield searches that spend the compute of ``compute`` mean full-budget runs.

    Args:
        observes_compute: whether samplers observe the compute of each run, as in a study with a
            limit of CPU time.
    """
    mean = float(np.mean([row.compute for row in table.rows]))
    for name in names:
        kind, rungs = SEARCHES[name]
        traces = []
        for seed in seeds:
            replay = Replay(table, kind and SamplerSpec(kind, {}, seed), rungs, workers,
                            observes_compute=observes_compute)
            results = replay.run(compute=compute * mean)
            traces.append(Trace(results.compute / mean, results.hypervolume, results.ended,
                                results.started))
        yield Search(name, traces)


def show(results: list[Search], column: str, marks: list[int]) -> None:
    """Print mean and standard error of every search at every mark."""
    print(f"  {'':16}", *(f"{mark:>14}" for mark in marks))
    for search in results:
        show_line(search.name, search.regrets(column, marks))


def show_nearly(results: list[Search], rows: int, share: float) -> None:
    """Print the mean compute to a share of the best hypervolume, if all seeds reached it."""
    print(f"  compute to {share:.0%} of the table's best hypervolume, in full-budget runs")
    yard = next((_to(search, share) for search in results if search.name == YARDSTICK), [])
    for search in results:
        came = _to(search, share)
        if len(came) < len(search.traces):
            half = len(search.traces) // 2
            median = f", median {sorted(came)[half]:.1f}" if len(came) > half else ""
            print(
                f"  {search.name:16} {len(came)} of {len(search.traces)} seeds reached it{median}")
            continue
        error = np.std(came, ddof=1) / np.sqrt(len(came)) if len(came) > 1 else 0.0
        all_did = len(yard) == len(search.traces)
        against = (f", {np.mean(yard) / np.mean(came):.2f} times less than {YARDSTICK}" if all_did
                   else "")
        print(f"  {search.name:16} {np.mean(came):6.1f} ± {error:.1f} = {np.mean(came) / rows:.1%} "
              f"of the table's, worst seed {max(came) / rows:.1%}{against}")


def _to(search: Search, share: float) -> list[float]:
    """Return the compute to a share of the best hypervolume, per seed that reached it."""
    return [float(trace.compute[int(np.argmax(trace.hypervolume >= share))])
            for trace in search.traces if (trace.hypervolume >= share).any()]


def show_ratios(results: list[Search], marks: list[int]) -> None:
    """Print the compute to the regret of plain TPE at each mark, as a share of the mark."""
    yard = next((search for search in results if search.name == YARDSTICK), None)
    if yard is None:
        return
    print(f"  compute to the mean regret of {YARDSTICK} after n full-budget runs, as a "
          "share of n")
    places = np.geomspace(0.05, marks[-1], 400)
    for search in results:
        mean = search.regrets("compute", places).mean(0)
        cells = []
        for mark, goal in zip(marks, yard.regrets("compute", marks).mean(0)):
            reached = np.flatnonzero(mean <= goal + 1e-9)
            cells.append(f"{places[reached[0]] / mark:.2f}" if len(reached) else "never")
        print(f"  {search.name:16}", *(f"{cell:>14}" for cell in cells))


def replay(name: str, table: Table, note: str, options: argparse.Namespace) -> list[Search]:
    """Run every search on a table and print the results."""
    names = ", ".join(objective.name for objective in table.objectives)
    print(f"\n{name}: {len(table.rows)} models{note}, objectives {names}, {options.seeds} "
          f"seeds, from {options.first_seed}, {options.workers} workers; its front has {table.front} "
          f"models, the best of which has {table.share:.0%} of the hypervolume", flush=True)
    if options.ends:
        print("  regret in % of searches that end after n full-budget runs")
        (print_forecasts if options.forecast else print_regrets_at_ends)(table, options, options.ends)
        return []
    results = list(searches(table, options.searches, seeds_of(options), options.workers, options.compute,
                          options.observes_compute))
    marks = [mark for mark in MARKS if mark <= options.compute] or [max(1, int(options.compute))]
    print("  regret in % after the compute of n full-budget runs")
    show(results, "compute", marks)
    print("  regret in % after n candidates were started")
    show(results, "started", marks)
    show_ratios(results, [mark for mark in marks if mark >= 20] or marks)
    for share in NEARLY:
        show_nearly(results, len(table.rows), share)
    return results


def _tables(options: argparse.Namespace) -> dict[str, tuple[Table, str]]:
    """Return tables by name, each with a note on it."""
    if options.synthetic is not None:
        return {name: (make_table(name, options.synthetic), "") for name in TYPES}
    files = sorted(options.tables.glob("*.csv")) if options.tables.is_dir() else [options.tables]
    if not files:
        raise UserError(f"{options.tables}: the folder does not contain a table, NAME.csv",
                        code="no-table")
    return {file.stem: _table(file, options) for file in files}


def _table(file: Path, options: argparse.Namespace) -> tuple[Table, str]:
    """Return a table, and a note on it."""
    if own_tables.is_own(file):
        costs = [f"{cost}.total" for cost in options.costs]
        half = f", half {options.half}" if options.half else ""
        return (own_tables.read(file, costs, options.compute_in, options.half),
                f" ({options.compute_in}{half})")
    rungs = any(SEARCHES[name][1].n_pauses for name in options.searches)
    bleu = Objective("bleu", "max", True)
    table, without = read(file, (bleu, *(Objective(cost, "min", False) for cost in options.costs)),
                          rungs)
    return table, f" ({without} left out: repeated, or without a curve)" if without else ""


def as_json(tables: dict[str, list[Search]]) -> str:
    """Return all traces as JSON."""
    kept = [{"table": name, "search": search.name, "seed": seed, "compute": trace.compute.tolist(),
             "volume": trace.hypervolume.tolist(), "ended": trace.ended.tolist(),
             "begun": trace.started.tolist()} for name, results in tables.items()
            for search in results for seed, trace in enumerate(search.traces, 1)]
    return json.dumps(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, default=own_tables.FOLDER,
                        help="a folder of tables, or one .csv")
    parser.add_argument("--synthetic", type=int, metavar="SEED",
                        help="instead: synthetic tables on which early losses mislead")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1,
                        help="seeds 1 to 10 were used to choose defaults")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--ends", type=int, nargs="+", metavar="RUNS",
                        help="full-budget runs per search")
    parser.add_argument(
        "--forecast", type=int, default=0, metavar="RUNS",
        help="with --ends: check the forecast of the gain of n further runs")
    parser.add_argument("--anchor", nargs=2, action="append", default=[],
                        metavar=("TOOL", "PYTHON"),
                        help=f"with --ends: {', '.join(ANCHORS)}, and an interpreter that has it")
    parser.add_argument("--compute", type=float, default=80.0, help="compute, in full-budget runs")
    parser.add_argument("--observes-compute", action="store_true",
                        help="samplers observe the compute of each run")
    parser.add_argument(
        "--costs", nargs="+", default=["params"], choices=["params", "macs", "seconds"],
        help="the other goals: params, macs (own tables), seconds (published tables)")
    parser.add_argument("--compute-in", default="cpu", choices=own_tables.COMPUTE,
                        help="of own tables: cpu or macs")
    parser.add_argument("--half", type=int, default=0, choices=(0, 1, 2),
                        help="only this half of the rows of a table of own_tables.py; 0: all")
    parser.add_argument("--searches", nargs="+", default=list(USUAL), choices=SEARCHES)
    parser.add_argument("--plot", type=Path, metavar="STEM", help="draw STEM.png and STEM.svg")
    parser.add_argument("--json", type=Path, help="write every trace here")
    options = parser.parse_args()
    try:
        tables = {name: replay(name, *table, options) for name, table in _tables(options).items()}
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    if options.json:
        write_atomic(options.json, lambda file: file.write(as_json(tables).encode()))
    if options.plot:
        draw(tables, " and ".join(options.costs), options.compute, options.plot)


if __name__ == "__main__":
    main()
