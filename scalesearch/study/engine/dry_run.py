"""Dry run of a study: its feasible share and first proposals, or its rows."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from optuna.samplers import BaseSampler
from rich.console import Console
from rich.table import Table

from scalesearch.data.sources import fingerprint_text
from scalesearch.errors import UserError
from scalesearch.files import why_not_writable
from scalesearch.pareto.noise import format_percent
from scalesearch.report.labels import brief
from scalesearch.space.assembly.architecture import ModelSpec, assemble
from scalesearch.space.schema.cost_names import OWN_VOCABULARY
from scalesearch.study.config.sections import WARM_FILE
from scalesearch.study.config.spec import CORPUS, StudySpec
from scalesearch.study.engine import setup
from scalesearch.study.engine.distillation import Teacher, find_teacher
from scalesearch.study.engine.forecasting import forecast_of
from scalesearch.study.engine.proposals import Proposals
from scalesearch.study.monitor.forecast import Forecast, describe_forecast
from scalesearch.study.monitor.format import short
from scalesearch.study.transfer.fork import carried, describe, open_old
from scalesearch.study.transfer.warm_start import WarmStart, choose
from scalesearch.study.trials.callback import Callback
from scalesearch.study.trials.evaluator import Evaluator, Feasibility, estimate_feasibility
from scalesearch.study.trials.event_log import EventLog, sealed
from scalesearch.study.trials.plan import Plan
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Event, Kind, State, Trial
from scalesearch.study.trials.trials import Trials
from scalesearch.terminal import make_table, print_text

SHOWN = 8
ENOUGH = 400  # feasible candidates drawn, after which their share is known to a twentieth of itself
IN_JSON = ("label", "architecture", "tuned", "params", "costs", "feasible", "state", "reason")  # of a proposal


@dataclass(frozen=True)
class DryRun:
    """Findings of a dry run.

    Attributes:
        trials: the first proposals of a search, or every row, those that are not trained included.
        size: architectures in the space; None where there is no end of them, and for rows.
        feasibility: of random candidates; None for rows.
        forecast: or why there is none.
    """

    spec: StudySpec
    evaluator: Evaluator
    trials: tuple[Trial, ...]
    size: int | None = None
    feasibility: Feasibility | None = None
    teacher: Teacher | None = None
    warm: WarmStart | None = None
    forecast: Forecast | str = ""

    @property
    def trained(self) -> list[Trial]:
        """The trials that would be trained; an architecture that several rows describe is trained once."""
        first: dict[str | None, Trial] = {}
        for trial in self.trials:
            if trial.state == State.PENDING:
                first.setdefault(trial.identity, trial)
        return list(first.values())

    @property
    def trainings(self) -> int:
        """Number of trainings of rows, with all seeds."""
        return len(self.trained) * self.spec.seeds.references

    @cached_property
    def rates(self) -> list[dict[str, object]]:
        """Peak learning rates by group of weights, of the first architecture that would be trained."""
        if not self.trained:
            return []
        from scalesearch.nn import build_model
        from scalesearch.train.updates.parametrization import summarize_scales

        first, recipe = assemble(self.trained[0].answers), self.spec.recipe_space.build_recipe(self.trained[0].tuned)
        words = self.evaluator.protocol.with_vocab(first.vocab).vocab_size
        return summarize_scales(build_model(first.block, vocab=words, device="meta"), recipe)

    def to_json(self) -> dict[str, object]:
        """JSON of all fields."""
        forecast = None if isinstance(self.forecast, str) else msgspec.to_builtins(self.forecast)
        spec, common = self.spec, {"study": self.spec.name, "protocol": self.evaluator.protocol.to_json(),
                                   "seeds": self.spec.seeds.to_json(), "out": str(self.spec.out),
                                   "forecast": forecast,
                                   "teacher": self.teacher and msgspec.to_builtins(self.teacher.meta),
                                   "rates": self.rates}
        trials = [{key: trial.to_json()[key] for key in IN_JSON} for trial in self.trials]
        if spec.rows is not None:
            return {**common, **spec.rows.to_json(), "trainings": self.trainings, "architectures": trials}
        assert self.feasibility is not None, "of a search"
        return {**common, "recipe": spec.recipe_space.distribution_texts,
                "space": {"hash": spec.space.hash, "size": self.size, "parameters": len(spec.space.parameters())},
                "sampled": self.feasibility.samples, "feasible": self.feasibility.feasible,
                "missed": dict(self.feasibility.missed), "trials": spec.trials, "proposals": trials,
                "warm_start": self.warm and self.warm.to_json()}

    def show(self, console: Console) -> None:
        """Prints it for people."""
        for line in (self._of_rows() if self.spec.rows else self._of_search()):
            print_text(line, console)
        for line in describe_forecast(self.forecast):
            print_text(line, console)
        console.print(self._table())
        if self.rates:
            console.print(self._rates_table())

    def _common(self) -> list[str]:
        vocab = "each candidate's own size" if self.spec.vocab == OWN_VOCABULARY else ""
        protocol, work = self.evaluator.protocol, [trial.costs.get("macs.once", 0) for trial in self.trials]
        return [f"Costs: protocol {protocol}; {protocol.conventions}", *protocol.weight_work_lines(*work),
                f"Data: {self.spec.data.describe(vocab)}",
                *([f"Teacher: {self.teacher.describe()}"] if self.teacher else []),
                f"Recipe: {self.spec.recipe.describe()}",
                *(f"  asked: {key}: {text}" for key, text in self.spec.recipe_space.distribution_texts.items())]

    def _of_rows(self) -> list[str]:
        spec = self.spec
        assert spec.rows is not None, "of rows"
        return [f"Study {spec.name}, kind {spec.rows.kind}: {', '.join(map(str, spec.objectives))}", *self._common(),
                f"Would train {len(self.trained)} of {len(self.trials)} rows, seeds each: {spec.seeds.references}, "
                f"{self.trainings} trainings in all, {spec.workers} at a time ({spec.backend}), into {spec.out}"]

    def _of_search(self) -> list[str]:
        spec, odds = self.spec, self.feasibility
        assert odds is not None, "of a search"
        size = "without end (it holds a continuous range)" if self.size is None else f"{self.size:,}"
        return [
            f"Study {spec.name}: {', '.join(map(str, spec.objectives))}",
            f"Space: {len(spec.space.parameters())} parameters, size {size}",
            f"Feasible: {odds.feasible / odds.samples:.1%} of {odds.samples} random candidates",
            *(f"  {missed / odds.samples:.1%} miss {name}" for name, missed in odds.missed.items() if missed),
            *self._common(),
            *([self.warm.describe()] if self.warm else []),
            f"Would train {spec.amount} and {len(spec.references)} references, {spec.workers} at a time "
            f"({spec.backend}), into {spec.out}",
            *([f"Then up to {spec.seeds.trials} trainings with further seeds, until the front has at most "
               f"{spec.seeds.most} seeds each or its members are settled at {format_percent(spec.seeds.confidence)}"]
              if spec.seeds.most > 1 else []),
            *([f"Each reference is trained with {spec.seeds.references} seeds"] if spec.seeds.references > 1 else []),
        ]

    def _rates_table(self) -> Table:
        rows = [(row["role"], short(row["params"]), f"{row['lr']:.2e}", f"× {row['init']:.2f}", row["optimizer"],
                 row["first"]) for row in self.rates]
        return make_table(("weights", "params", "peak", "init", "by", "such as"), rows, (0, 4, 5),
                          f"Learning rates of {self.trained[0].architecture}, by group of weights", has_box=True)

    def _table(self) -> Table:
        named, asked = self.spec.rows is not None, self.spec.recipe_space.distribution_texts
        headings = (*["row"] * named, "params", "MACs", "architecture", *asked, "what becomes of it")
        trained, rows = {trial.number for trial in self.trained}, []
        for trial in self.trials:
            costs = [short(trial.costs[f"{what}.total"]) if trial.costs else "" for what in ("params", "macs")]
            fate = trial.reason or ("trained" if trial.number in trained else "duplicate of another")
            recipe = (brief(trial.tuned.get(key, "")) for key in asked)
            rows.append([*[trial.label] * named, *costs, trial.architecture or "", *recipe, fate])
        left = [at for at, heading in enumerate(headings) if heading not in ("params", "MACs")]
        return make_table(headings, rows, left, "Rows" if named else "The first proposals", has_box=True)


def dry_run(spec: StudySpec, seconds: float = 0.0) -> DryRun:
    """Finds out what a study would do; trains nothing and leaves nothing behind.

    Args:
        seconds: to measure the speed of its models for.

    Raises:
        UserError: what a real run would refuse as well.
    """
    if reason := why_not_writable(spec.out.absolute(), is_folder=True):
        raise UserError(f"{spec.out}: cannot be written ({reason}); choose another --out", code="cannot-write")
    corpora = None
    if spec.vocab == CORPUS or "lengths" in spec.protocol or spec.teacher or spec.warm:
        corpora = setup.load_data(spec)  # its vocabulary's size is part of the protocol, and must be the teacher's
    else:
        fingerprint_text(spec.data.with_absolute_paths())
    teacher = find_teacher(spec, corpora.first) if corpora else None
    evaluator = setup.make_evaluator(spec, corpora)
    within, begun = setup.drop_infeasible_rows(spec, evaluator), StudyDir(spec.out)
    trials = begun.load().trials if begun.begun() else Trials()

    def look_ahead(named: list[ModelSpec]) -> Forecast | str:
        return forecast_of(spec, evaluator, named, trials, lambda: corpora or setup.load_data(spec), seconds)

    if spec.rows is not None:
        listed = spec.rows.rows or setup.references(within)
        listed_trials = (replace(evaluator.evaluate_architecture(row.architecture, {}), number=number, label=row.label)
                         for number, row in enumerate(listed))
        found = DryRun(within, evaluator, tuple(listed_trials), teacher=teacher)
        rows = {row.label: row.architecture for row in listed}
        return replace(found, forecast=look_ahead([rows[str(trial.label)] for trial in found.trained]))
    named = list({one.architecture.id: one.architecture for one in setup.references(spec)}.values())
    sampler, warm = setup.sampler_of(spec, evaluator), None
    if spec.warm and corpora:
        plan = setup.set_up(spec, corpora, teacher and teacher.meta).plan
        took = spec.out / WARM_FILE
        warm = WarmStart.read(took) if begun.begun() and took.is_file() else \
            choose(spec.warm, plan, getattr(sampler, "n_startup_trials", 10))
    plan = Plan(evaluator, spec.objectives, spec.trials, references=setup.references(spec))
    return DryRun(spec, evaluator, first_proposals(plan, sampler), spec.space.n_configurations(),
                  estimate_feasibility(evaluator, spec.proposer.seed, enough=ENOUGH), teacher, warm, look_ahead(named))


class _Unwritten(EventLog):
    """An event log that keeps nothing."""

    def append(self, kind: Kind, trial: int, **facts: Any) -> Event:
        return Event.from_json(sealed({"event": kind, "trial": trial, **facts}))


def first_proposals(plan: Plan, sampler: BaseSampler | None, count: int = SHOWN) -> tuple[Trial, ...]:
    """Proposes as a run would before any result counts, rejected proposals included."""
    study = StudyDir(Path())
    study.log = _Unwritten(Path())
    proposals = Proposals(plan, study, sampler, Callback())
    while proposals.reference():
        pass
    named = len(study.trials)
    startup = getattr(sampler, "n_startup_trials", count + named)  # further ones depend on results
    count = min(count, plan.trials, max(1, startup - named))
    for _ in range(count):
        if proposals.sampled() is None:
            break
    return tuple(study.trials)[named : named + count]


def describe_fork(spec: StudySpec, folder: Path) -> list[str]:
    """Describes the trials that a fork would take over; writes nothing.

    Raises:
        UserError: there is nothing to fork.
    """
    old, new = open_old(spec, folder)
    corpora = setup.load_data(new)
    teacher = find_teacher(new, corpora.first)
    ready = setup.set_up(new, corpora, teacher and teacher.meta)
    return describe(old, carried(old, ready.plan, ready.meta))
