"""What a person sees of a running study: a live table on a terminal, one line an event elsewhere."""

import json
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from scalesearch.pareto.front import pareto_front
from scalesearch.study.config.objectives import Objective, directions
from scalesearch.study.executors.lease import describe_silence
from scalesearch.study.replicates.summary import candidates_of
from scalesearch.study.trials.history import goals_of
from scalesearch.study.trials.trials import (
    COMPLETE,
    DUPLICATE,
    FAILED,
    INFEASIBLE,
    PAUSED,
    PENDING,
    SEED,
    WARM,
    Ledger,
    Trial,
)


def short(value: float) -> str:
    """A number as people read it: 27.31, 1.24M, 0.0021."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (limit if letter != 'k' else 1e3):.3g}{letter}"
    return f"{value:.4g}"


class View:
    """Shows nothing; what a driver tells whoever watches."""

    def say(self, text: str) -> None:
        """A line for people."""

    def proposed(self, trial: Trial) -> None:
        """A proposal was judged by its bill."""

    def started(self, trial: Trial) -> None:
        """Training of a candidate begins, or begins again."""

    def ended(self, trial: Trial) -> None:
        """A candidate is complete or failed, and on disk."""

    def paused(self, trial: Trial) -> None:
        """A candidate has come to a rung, where it waits."""

    def update(self) -> None:
        """Something may have changed."""


class Lines(View):
    """One plain line an event, for logs and pipes."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def say(self, text: str) -> None:
        """A line with the time before it."""
        self._write(f"{time.strftime('%H:%M:%S')} {text}")

    def started(self, trial: Trial) -> None:
        """Says which candidate starts."""
        again = f", attempt {trial.attempts}" if trial.attempts > 1 else ""
        again = f", on from rung {len(trial.rungs)}" if trial.rungs else again
        label = f" [{trial.label}]" if trial.label else ""
        label += f" [seed {trial.seed} of trial {trial.of}]" if trial.origin == SEED else ""
        self.say(f"trial {trial.number}{label} ({trial.id}) in training{again}")

    def paused(self, trial: Trial) -> None:
        """Says how it stands."""
        self.say(f"trial {trial.number} waits at rung {len(trial.rungs)}: validation loss {trial.rungs[-1]:.3f}")

    def ended(self, trial: Trial) -> None:
        """Says what came of it."""
        if trial.state == FAILED:
            self.say(f"trial {trial.number} failed: {trial.reason}")
            return
        found = ", ".join(f"{name} {short(value)}" for name, value in (trial.values or {}).items())
        seconds = f" after {trial.seconds:.0f} wall seconds" if trial.seconds is not None else ""
        self.say(f"trial {trial.number} complete{seconds}: {found}")


class Screen(Lines):
    """A table that renews itself: counts, what runs and how far it is, the best so far, the time left.

    Args:
        wanted: candidates and references in all. seeds: of each reference.
        alive: somebody runs the study; else what is in training waits to go on, and no time left can be told.
    """

    def __init__(self, console: Console, ledger: Ledger, objectives: tuple[Objective, ...], wanted: int, slots: int,
                 folder: Path, seeds: int = 1, alive: bool = True) -> None:
        super().__init__(lambda text: console.print(text, highlight=False, markup=False))
        self._ledger, self._objectives, self._wanted, self._slots = ledger, objectives, wanted, slots
        self._folder, self._seeds, self._alive = folder, seeds, alive
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=2, transient=True)

    def __enter__(self) -> "Screen":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def render(self) -> Group:
        """The screen as it is now; called from Live's own thread, so it reads copies."""
        trials = self._ledger.searched()
        again = self._ledger.replicated()
        at_work = [trial for trial in (*trials, *again) if trial.state == PENDING]
        running = [self._running(at_work)] if at_work else []
        return Group(self._counts(trials, again), *running, self._best())

    def _counts(self, trials: list[Trial], again: list[Trial]) -> Table:
        table = Table(title=f"Study in {self._folder}", title_justify="left")
        counts = {state: sum(t.state == state for t in trials)
                  for state in (COMPLETE, PENDING, PAUSED, FAILED, INFEASIBLE, DUPLICATE)}
        counts[PENDING] += sum(t.state == PENDING for t in again)
        left = [("further seeds", str(sum(t.state == COMPLETE for t in again)))] if again else []
        left += [("time left", self._left(trials))] if self._alive and self._to_do(trials) else []
        done, running, *others = counts.values()
        cells = (f"{done} of {self._wanted}", str(running), *map(str, others), *(text for _, text in left))
        headings = ("done", "running" if self._alive else "to go on", "at a rung", "failed", "infeasible",
                    "seen before", *(heading for heading, _ in left))
        for heading in headings:
            table.add_column(heading, justify="right")
        table.add_row(*cells)
        return table

    def _to_do(self, trials: list[Trial]) -> int:
        """Trainings still to come; a reference counts as done also where it failed or was a repetition."""
        done = sum((t.state == COMPLETE and t.origin != WARM) or (t.origin == "reference" and t.state != PENDING)
                   for t in trials)
        return max(0, self._wanted - done, sum(t.state == PENDING for t in trials)) + self._seeds_to_do(trials)

    def _seeds_to_do(self, trials: list[Trial]) -> int:
        """Further seeds that references are due; of rows, those not yet begun as well."""
        named = {t.number for t in trials if t.origin == "reference" and t.state in (PENDING, COMPLETE)}
        begun = all(t.origin == "reference" for t in trials) and max(0, self._wanted - len(trials))
        ended = sum(t.of in named and t.state != PENDING for t in self._ledger.replicated())
        return max(0, (len(named) + begun) * (self._seeds - 1) - ended)

    def _left(self, trials: list[Trial]) -> str:
        took = [t.seconds for t in trials if t.state == COMPLETE and t.seconds is not None]
        if not took:
            return "unknown yet"
        to_do = self._to_do(trials)
        return f"about {timedelta(seconds=round(float(np.mean(took)) * to_do / self._slots))}"

    def _running(self, trials: list[Trial]) -> Table:
        table = Table("trial", "architecture", "params", "MACs", "progress")
        for trial in trials[: 2 * self._slots]:
            cost = trial.cost or {}
            costs = [short(cost[name]["total"]) if name in cost else "" for name in ("params", "macs")]
            table.add_row(escape(self._called(trial)), trial.id or "", *costs, self._progress(trial))
        return table

    def _called(self, trial: Trial) -> str:
        name = trial.label or str(trial.number)
        return f"{trial.label or trial.of}, seed {trial.seed}" if trial.origin == SEED else name

    def _progress(self, trial: Trial) -> str:
        place = self._folder / "trials" / trial.name
        if dead := describe_silence(place):
            return dead
        try:
            facts = json.loads((place / "progress.json").read_text())
        except (OSError, ValueError):
            return "starting"
        return describe_progress(facts)

    def _best(self) -> Table:
        done = candidates_of(self._ledger, goals_of(self._objectives))
        rows = np.array([[one.value(o.name) for o in self._objectives] for one in done])
        size = int(pareto_front(rows, directions(self._objectives)).sum()) if done else 0
        table = Table("best so far", "value", "trial", title=f"{size} on the front", title_justify="left")
        for column, objective in enumerate(self._objectives if done else ()):
            at = int(rows[:, column].argmax() if objective.direction == "max" else rows[:, column].argmin())
            table.add_row(str(objective), short(rows[at, column]), str(done[at].number))
        return table


def describe_progress(facts: dict[str, Any]) -> str:
    """A trainer's report in a few words."""
    if facts.get("kind") == "decode":
        return f"translating, {facts.get('done')} of {facts.get('of')}"
    shown = [f"{facts['share']:.0%}"] if isinstance(facts.get("share"), int | float) else []
    for key, words in (("loss", "loss {:.3f}"), ("tokens_per_second", "{:,.0f} tokens/s")):
        if isinstance(facts.get(key), int | float):
            shown.append(words.format(facts[key]))
    if isinstance(facts.get("eta_seconds"), int | float):
        shown.append(f"{timedelta(seconds=round(facts['eta_seconds']))} left")
    return ", ".join(shown) or "in training"


def share(facts: Mapping[str, Any]) -> float:
    """How much of a training or of a translation is done, from 0 to 1, by its last report."""
    if facts.get("kind") == "decode":
        return float((facts.get("done") or 0) / (facts.get("of") or 1))
    return min(1.0, float(facts.get("share") or 0))
