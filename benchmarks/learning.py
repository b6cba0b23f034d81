"""CPU-minutes of two recipes to a validation loss and BLEU, interleaved in one process.

    python benchmarks/learning.py --data FILE --recipes today.yaml best.yaml --bleu 30 35 [--seeds 1
    2 3]
        [--architecture small/plain] [--set width=256] [--first 400] [--most 6400] [--out
        runs/learning]

A budget that is doubled until a training under it ends at the goal: where rates fall to zero at the
end, no shorter way of finding out is fair. Between the last budget below the goal and the first at
it, updates and CPU-minutes are interpolated on a logarithmic scale. One thread; what is done is
kept, and a run that was interrupted is resumed. The test is Welch's, of the logarithms of CPU-minutes.
"""

import argparse
import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from plain_loop import corpus_of
from rich.console import Console
from rich.table import Table
from scipy.stats import ttest_ind

from scalesearch.cli.options import load_architecture
from scalesearch.training import Recipe, Result, train
from scalesearch.training.input_files import load_recipe

MEASURES = ("cpu_minutes", "steps", "tokens", "minutes")


@dataclass(frozen=True)
class Goal:
    """A target value of a validation metric."""

    metric: str
    value: float

    def reached(self, result: Result) -> bool:
        return self.excess(result) >= 0

    def excess(self, result: Result) -> float:
        """How far a training ended beyond the goal."""
        result = result.metrics[self.metric] - self.value
        return result if self.metric == "bleu" else -result

    def __str__(self) -> str:
        return f"{self.metric} {self.value:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="builtin", help="a data file, or builtin")
    parser.add_argument("--recipes", nargs=2, required=True,
                        help="files or presets; their budgets are replaced")
    parser.add_argument("--architecture", default="small/plain")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--bleu", type=float, nargs="*", default=[])
    parser.add_argument("--loss", type=float, nargs="*", default=[])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--first", type=int, default=400, help="updates of the smallest budget")
    parser.add_argument("--most", type=int, default=6400, help="updates of the largest")
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    corpus = corpus_of(options)
    architecture = load_architecture(options.architecture, options.set)[1]
    goals = [*(Goal("bleu", value) for value in options.bleu),
             *(Goal("validation_loss", value) for value in options.loss)]
    recipes = {name: load_recipe(name, ()) for name in options.recipes}
    console = Console(width=160)
    done = {}
    budget = options.first
    while budget <= options.most:
        for seed, (name, recipe) in itertools.product(options.seeds, recipes.items()):
            ended = done.setdefault((name, seed), [])
            if all(any(goal.reached(result) for result in ended) for goal in goals):
                continue
            result = train(architecture, corpus, under(recipe, budget),
                          folder(options.out, name, seed, budget), seed)
            if result.state != "complete":
                console.print(f"{Path(name).stem}, seed {seed}, {budget} updates: {result.state}, "
                              f"{result.reason}")
                continue
            ended.append(result)
            minutes = result.cpu_seconds / 60
            scores = result.metrics
            console.print(f"{Path(name).stem}, seed {seed}, {budget} updates: {minutes:.2f} "
                          f"CPU-minutes, BLEU {scores['bleu']:.2f}, valid loss "
                          f"{scores['validation_loss']:.4f}")
        budget *= 2
    console.print(table(options.recipes, options.seeds, goals, done))


def under(recipe: Recipe, steps: int) -> Recipe:
    """``recipe`` with a budget of updates alone, decoding greedily."""
    none = dict.fromkeys(("tokens", "epochs", "cpu_minutes", "minutes"))
    return recipe.replace(**none, steps=steps, beam=1, score_splits="valid", threads=1)


def folder(out: Path, name: str, seed: int, steps: int) -> Path:
    return out / f"{Path(name).stem}-seed{seed}-{steps}"


def to_goal(goal: Goal, ended: list[Result]) -> dict[str, float] | None:
    """Return the effort to a goal, interpolated between budgets; None if not reached."""
    index = next((i for i, result in enumerate(ended) if goal.reached(result)), None)
    if index is None:
        return None
    spent = [{"cpu_minutes": result.cpu_seconds / 60, "steps": result.steps,
              "tokens": result.tokens, "minutes": result.seconds / 60} for result in ended]
    if index == 0:
        return spent[0]
    short = -goal.excess(ended[index - 1])
    beyond = goal.excess(ended[index])
    share = short / (short + beyond)
    return {name: math.exp((1 - share) * math.log(spent[index - 1][name])
                           + share * math.log(spent[index][name])) for name in MEASURES}


def table(names: list[str], seeds: list[int], goals: list[Goal],
          done: dict[tuple[str, int], list[Result]]) -> Table:
    """Geometric means over seeds of what each goal took, and the ratio of the two recipes."""
    spent = (name.replace("_", "-") for name in MEASURES)
    table_ = Table("goal", "recipe", "seeds", *spent, "times fewer", "p", box=None)
    for goal in goals:
        logs: list[list[float]] = []
        for name in names:
            took = [spent for seed in seeds if (spent := to_goal(goal, done[name, seed]))]
            logs.append([math.log(spent["cpu_minutes"]) for spent in took])
            means = [f"{math.exp(fmean(math.log(spent[m]) for spent in took)):,.2f}" if took else ""
                     for m in MEASURES]
            ratio = p = ""
            if len(logs) == 2 and all(logs):
                ratio = f"{math.exp(fmean(logs[0]) - fmean(logs[1])):.2f}"
                p = f"{ttest_ind(*logs, equal_var=False).pvalue:.4f}" if min(
                    map(len, logs)) > 1 else ""
            table_.add_row(str(goal), Path(name).stem, str(len(took)), *means, ratio, p)
    return table_


if __name__ == "__main__":
    main()
