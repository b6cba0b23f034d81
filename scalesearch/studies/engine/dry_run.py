"""Dry run of a study: its feasible share and first proposals, or its rows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import Any

import pandas as pd
from optuna.samplers import BaseSampler
from rich.console import Console
from rich.table import Table

from scalesearch.errors import UserError, option
from scalesearch.files import read_json, why_not_writable
from scalesearch.pareto.noise import format_percent
from scalesearch.report.labels import format_value
from scalesearch.report.table import PARAM_PREFIX, architecture_lines, merge_names
from scalesearch.spaces.assembly.architecture import assemble, describe_uneven_heads
from scalesearch.spaces.schema.builtin import named_config
from scalesearch.spaces.schema.cost_names import COST_NAMES, OWN_VOCABULARY
from scalesearch.studies.config.fixed_architectures import COMPRESS
from scalesearch.studies.config.sections import WARM_START_FILE
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.engine import setup
from scalesearch.studies.engine.compression import Replacements
from scalesearch.studies.engine.corpora import Corpora, load_corpora
from scalesearch.studies.engine.distillation import Teacher, find_teacher
from scalesearch.studies.engine.proposals import Proposals
from scalesearch.studies.executors.local import assign_devices
from scalesearch.studies.forecast import StudyForecast, make_forecast, training_measurer
from scalesearch.studies.monitor.format import describe_forecast, format_number
from scalesearch.studies.monitor.format import format_value as format_cost
from scalesearch.studies.trials.compatibility import StudyChangedError, check_unchanged
from scalesearch.studies.trials.evaluator import (
    Evaluator,
    FeasibilityEstimate,
    estimate_feasibility,
)
from scalesearch.studies.trials.event_log import EventLog, encode_event
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import (
    Callback,
    EventType,
    State,
    Trial,
    TrialEvent,
    parse_event,
)
from scalesearch.studies.trials.trials import Trials
from scalesearch.studies.warm_start import WarmStart, choose_warm_start
from scalesearch.terminal import format_count, format_share, make_table, print_text

WIDTH_BEFORE_NAME = 52  # of the table of learning rates
MIN_NAME_WIDTH = 20
MAX_ROWS_PRINTED = 8
# feasible candidates drawn, after which their share is known to a twentieth of itself
MAX_FEASIBLE_SAMPLES = 400


@dataclass(frozen=True)
class DryRun:
    """Findings of a dry run.

    Attributes:
        fixed: references of a search, or every row, those that are not trained included.
        notes: on the data, such as dropped pairs.
        proposals: the first proposals of a search.
        size: number of architectures in the space; None if infinite, or for fixed architectures.
        feasibility: of random candidates; None for rows.
        forecast: the forecast, or the reason why it is missing.
        replacements: of a compression; its only row is the parent.
        resume: what `--resume` does with the study in this folder, in words; empty for a new one.
    """

    spec: StudySpec
    evaluator: Evaluator
    corpora: Corpora
    fixed: tuple[Trial, ...]
    notes: tuple[str, ...]
    proposals: tuple[Trial, ...] = ()
    size: int | None = None
    feasibility: FeasibilityEstimate | None = None
    teacher: Teacher | None = None
    warm_start: WarmStart | None = None
    forecast: StudyForecast | str = ""
    replacements: Replacements | None = None
    resume: str = ""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The first proposals of a search, or every row."""
        return self.fixed if self.spec.architectures is not None else self.proposals

    @property
    def trials_to_train(self) -> list[Trial]:
        """The trials that would be trained.

        An architecture that several rows describe is trained once.
        """
        first: dict[str | None, Trial] = {}
        for trial in self.trials:
            if trial.state == State.PENDING:
                first.setdefault(trial.identity, trial)
        return list(first.values())

    @property
    def planned_runs(self) -> int:
        """Number of runs of fixed architectures, with all seeds."""
        n_architectures = self.spec.trials if self.replacements else len(self.trials_to_train)
        return n_architectures * self.spec.seeds.references

    @cached_property
    def learning_rates(self) -> list[dict[str, Any]]:
        """Peak learning rates by group of weights, of the first architecture to train."""
        if not self.trials_to_train:
            return []
        from scalesearch.nn import build_model
        from scalesearch.training.updates.parametrization import summarize_scales

        first = assemble(self.trials_to_train[0].config)
        recipe = self.spec.recipe_space.build_recipe(self.trials_to_train[0].recipe_params)
        words = self.corpora.of_architecture(first).tokenizer.vocab_size
        return summarize_scales(build_model(first.block, vocab=words, device="meta"), recipe)

    def show(self, console: Console) -> None:
        """Print the findings for people."""
        notes = (describe_uneven_heads(trial.config) for trial in (*self.fixed, *self.proposals))
        warnings = [f"warning: {note}" for note in next(filter(None, notes), [])]
        for line in (*self._describe(), *warnings, *setup.study_warnings(self.spec),
                     *describe_forecast(self.forecast)):
            print_text(line, console)
        console.print(self._table())
        for line in self._describe_proposals():
            print_text(line, console)
        if self.learning_rates:
            # A name that is wider than the rest of the line is broken at its dots.
            room = max(MIN_NAME_WIDTH, console.width - WIDTH_BEFORE_NAME)
            rows = [(row["role"], format_number(row["params"]), f"{row['lr']:.3g}",
                     f"× {row['init']:.3g}", row["optimizer"],
                     fill(row["first"].replace(".", ". "), room).replace(". ", "."))
                    for row in self.learning_rates]
            console.print(make_table(
                ("weights", "params", "peak lr", "init scale", "optimizer", "example"), rows,
                (0, 4, 5),
                f"Learning rates of {self.trials_to_train[0].architecture}, by group of weights"))

    def _describe(self) -> Iterator[str]:
        """Yield lines about the space, the settings and the number of runs."""
        spec = self.spec
        objectives = ", ".join(map(str, spec.objectives))
        workers = f"{spec.workers} at a time ({spec.backend}), into {spec.out}"
        if spec.architectures is not None:
            yield f"Study {spec.name}, type {spec.architectures.type}: {objectives}"
            yield from self._describe_settings()
            if self.replacements:
                yield from self.replacements.describe()
                yield (f"Would fine-tune up to {format_count(spec.trials, 'combination')} of them, "
                       f"{format_count(spec.seeds.references, 'seed')} each: at most "
                       f"{format_count(self.planned_runs, 'run')}, {workers}")
                return
            yield (f"Would train {len(self.trials_to_train)} of "
                   f"{format_count(len(self.trials), 'row')}, "
                   f"{format_count(spec.seeds.references, 'seed')} each: "
                   f"{format_count(self.planned_runs, 'run')}, {workers}")
            yield from self._describe_resume()
            return
        odds = self.feasibility
        assert odds is not None, "of a search"
        size = ("without end (it holds a continuous range)" if self.size is None
                else f"{self.size:,}")
        yield f"Study {spec.name}: {objectives}"
        yield f"Space: {format_count(len(spec.space.parameters()), 'parameter')}, size {size}"
        yield (f"Feasible: {format_share(odds.feasible / odds.samples)} of {odds.samples} random "
               "candidates")
        for name, missed in odds.violations.items():
            if missed:
                yield f"  {format_share(missed / odds.samples)} violate {name}"
        yield from self._describe_settings()
        if self.warm_start:
            yield self.warm_start.describe()
        references = (f" and {format_count(len(spec.references), 'reference')}"
                      if spec.references else "")
        yield f"Would train {spec.trials_text}{references}, {workers}"
        yield from self._describe_resume()
        is_recipe_searched = bool(spec.recipe_space.distribution_texts)
        if self.size is not None and self.size < spec.trials and not is_recipe_searched:
            yield (f"  the space has {format_count(self.size, 'configuration')}; the search ends "
                   "when all that are feasible are trained")
        if spec.seeds.max_per_candidate > 1:
            yield (f"Then up to {format_count(spec.seeds.extra_runs, 'run')} with further seeds, "
                   f"until each member of the front has {spec.seeds.max_per_candidate} seeds, or "
                   f"the front is significant at {format_percent(spec.seeds.confidence)}")
        for trial in self.fixed:
            yield (f"Reference {trial.label}: {format_number(trial.costs['params.total'])} params, "
                   f"{format_number(trial.costs['macs.total'])} MACs"
                   + (f"; trained, but not on the front: {trial.reason}" if trial.reason else ""))
        if spec.seeds.references > 1:
            yield f"Each reference is trained with {spec.seeds.references} seeds"

    def _describe_resume(self) -> Iterator[str]:
        if self.resume:
            yield f"  {self.resume}"

    def _describe_settings(self) -> Iterator[str]:
        vocab = "each candidate's own size" if self.spec.vocab == OWN_VOCABULARY else ""
        protocol = self.evaluator.protocol
        yield f"Costs: protocol {protocol}; {protocol.conventions}"
        yield from protocol.weight_work_lines(*(int(trial.costs.get("macs.once", 0))
                                                for trial in self.trials))
        yield f"Data: {self.spec.data.describe(vocab)}"
        window = self.spec.data.window
        if window and protocol.length != window:
            yield (f"  training and evaluation read windows of {window:,} tokens; costs of these "
                   f"need `protocol: {{length: {window}}}`")
        yield from (f"  {note}" for note in self.notes)
        if self.teacher:
            yield f"Teacher: {self.teacher.describe()}"
        yield f"Recipe: {self.spec.recipe_text}"

    def _table(self) -> Table:
        named = self.spec.architectures is not None
        recipe_keys = self.spec.recipe_space.distribution_texts
        headings_by_cost = {"params.total": "params", "macs.total": "MACs"}
        for objective in self.spec.objectives:
            if objective.name in COST_NAMES:
                headings_by_cost.setdefault(objective.name, objective.name.replace(".", " "))
        headings = ("name" if named else "trial", *headings_by_cost.values(), "architecture",
                    *recipe_keys, "action")
        trained = {trial.number for trial in self.trials_to_train}
        rows = []
        for trial in self.trials:
            costs = [format_cost(trial.costs[name], name) if trial.costs else ""
                     for name in headings_by_cost]
            action = trial.reason or ("train" if trial.number in trained
                                      else "duplicate of another")
            recipe = (format_value(trial.recipe_params.get(key, "")) for key in recipe_keys)
            rows.append([trial.label if named else trial.number, *costs,
                         trial.architecture or "", *recipe, action])
        left = [index for index, heading in enumerate(headings)
                if heading not in headings_by_cost.values()]
        return make_table(headings, rows, left, "Architectures" if named else "First proposals",
                          has_box=True)

    def _describe_proposals(self) -> list[str]:
        """Describe the hyperparameters of the proposals."""
        rows = [{f"{PARAM_PREFIX}{name}": value
                 for name, value in named_config(trial.config).items() if name in trial.params}
                for trial in self.proposals]
        trials = pd.DataFrame(rows, columns=merge_names(rows), dtype=object).fillna("")
        trials["trial"] = [trial.number for trial in self.proposals]
        trials["label"] = None
        return architecture_lines(trials, {name for trial in self.proposals
                                           for name in trial.params})


def dry_run(spec: StudySpec, measure_seconds: float = 0.0) -> DryRun:
    """Finds out what a study would do; trains nothing and leaves nothing behind.

    Args:
        measure_seconds: to measure the speed of its models for.

    Raises:
        UserError: what a real run would refuse as well.
    """
    if reason := why_not_writable(spec.out.absolute(), is_folder=True):
        raise UserError(f"{spec.out}: cannot be written ({reason}); choose another {option('out')}",
                        code="cannot-write")
    setup.check_blocks(spec)
    if spec.backend == "pool":
        assign_devices(spec.workers, spec.resources.fixed_gpus_per_trial)
    notes: list[str] = []
    corpora = load_corpora(spec, notes.append)
    teacher = find_teacher(spec, corpora.first)
    evaluator = setup.make_evaluator(spec, corpora)
    if spec.type == COMPRESS:
        replacements = Replacements.of(spec, evaluator)
        parent = evaluator.evaluate_architecture(replacements.parent.architecture, {}).replace(
            number=0, label="parent", state=State.PENDING, reason="its blocks are replaced")
        return DryRun(spec, evaluator, corpora, (parent,), tuple(notes), teacher=teacher,
                      forecast="the combinations are not known yet", replacements=replacements)
    setup.check_costs_of_blocks(spec, evaluator, notes.append)
    within = setup.drop_infeasible_architectures(spec, evaluator)
    fixed = spec.named_architectures or within.named_architectures
    fixed_trials = tuple(evaluator.evaluate_architecture(row.architecture, {})
                         .replace(number=number, label=row.label)
                         for number, row in enumerate(fixed))
    measured = {row.architecture.id: row.architecture for row, trial in zip(fixed, fixed_trials)
                if spec.architectures is None or trial.state == State.PENDING}
    study = StudyDir(spec.out)
    meta = setup.study_facts(spec, corpora, evaluator, teacher.meta if teacher else None)
    trials = Trials()
    resume = ""
    if study.has_started():
        study.load().check_complete()
        try:
            check_unchanged(spec.out, study.meta, meta)
        except StudyChangedError as error:
            resume = f"--resume is refused: {error}"
        else:
            trials = study.trials
            complete = trials.describe_complete(spec.architectures is None)
            resume = f"{complete} of these are complete; --resume trains the others"
    forecast = make_forecast(spec, evaluator, list(measured.values()), trials,
                             training_measurer(spec, corpora.of_architecture), measure_seconds)
    findings = DryRun(within, evaluator, corpora, fixed_trials, tuple(notes), teacher=teacher,
                      forecast=forecast, resume=resume)
    if spec.architectures is not None:
        return findings
    sampler = setup.build_sampler(spec, evaluator)
    warm_start = None
    if spec.warm_start:
        file = spec.out / WARM_START_FILE
        if study.has_started() and file.is_file():
            warm_start = read_json(file, WarmStart)
        else:
            study.meta = meta
            warm_start = choose_warm_start(study, spec, evaluator,
                                           getattr(sampler, "n_startup_trials", 10))
    return replace(findings, proposals=first_proposals(spec, evaluator, sampler),
                   size=spec.space.n_configurations(),
                   feasibility=estimate_feasibility(evaluator, spec.sampler.seed,
                                                    max_feasible=MAX_FEASIBLE_SAMPLES),
                   warm_start=warm_start)


class InMemoryEventLog(EventLog):
    """An event log that keeps nothing."""

    def append(self, event_type: EventType, trial: int, **facts: Any) -> TrialEvent:
        return parse_event(encode_event({"type": event_type, "trial": trial, **facts}))


def first_proposals(spec: StudySpec, evaluator: Evaluator,
                    sampler: BaseSampler | None) -> tuple[Trial, ...]:
    """Proposes as a run would before any result counts, rejected proposals included."""
    study = StudyDir(Path())
    study.log = InMemoryEventLog(Path())
    proposals = Proposals(spec, study, evaluator, sampler, Callback())
    while proposals.next_reference():
        pass
    named = len(study.trials)
    # further ones depend on results
    startup = getattr(sampler, "n_startup_trials", MAX_ROWS_PRINTED + named)
    max_proposals = min(MAX_ROWS_PRINTED, spec.trials, max(1, startup - named))
    for _ in range(max_proposals):
        if proposals.next_sampled() is None:
            break
    return tuple(study.trials)[named : named + max_proposals]
