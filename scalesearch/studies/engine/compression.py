"""Compression studies: the parent's blocks are replaced, and the best combinations are fine-tuned.

::

    runs/small/teacher/            the parent, unless the user names a finished training run
    runs/small/blocks/encoder.1/   replacements of blocks, one job per layer
    runs/small/blocks/checks/      losses of random combinations, to check additivity
    runs/small/blocks/pairs/       losses of pairs of replacements in neighboring layers
    runs/small/blocks/scores.json  the parent's loss, and its rise with each replacement
    runs/small/blocks/members.json the combinations that become trials
    runs/small/blocks/models/ID/   combinations with the weights of the library, as training runs

The jobs are those of the study's runner: they run on the same machines, resume after an
interruption, and are not repeated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from scalesearch.compression.alternatives import (
    Alternative,
    CostDeltas,
    Parent,
    cost_deltas,
    default_alternatives,
    list_alternatives,
    random_combinations,
)
from scalesearch.compression.front import (
    BLOCKS_FOLDER,
    SCORES_FILE,
    ScoredLibrary,
    frequent_pairs,
    geometric_rows,
    predict_front,
    predicted_costs,
)
from scalesearch.compression.library import (
    LayerResult,
    MeasuredResult,
    layer_folder,
    write_combination,
)
from scalesearch.compression.solver import solve
from scalesearch.cost import Protocol
from scalesearch.data import default_cache
from scalesearch.errors import UserError
from scalesearch.feasible.limits import collect_limits, upper_bounds
from scalesearch.files import read_json, write_json
from scalesearch.spaces import Constraint
from scalesearch.spaces.schema.cost_names import OWN_VOCABULARY
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.engine.distillation import progress_display
from scalesearch.studies.engine.jobs import FolderJobs
from scalesearch.studies.executors.base import Runner, TrainingJob
from scalesearch.studies.executors.worker import ProgressFile
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.record import BlocksJob, JobFile
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.terminal import format_count, print_text
from scalesearch.training.checkpoint import read_checkpoint
from scalesearch.training.result import RESULT_FILE

T = TypeVar("T")
# Combinations with a higher predicted loss, relative to the parent's, are not fine-tuned unless
# the limits leave no other.
MAX_LOSS_RATIO = 1.25
MAX_LABEL_LENGTH = 40  # combinations with a longer description are named by their id
CHECKS_FOLDER = "checks"
PAIRS_FOLDER = "pairs"
MODELS_FOLDER = "models"
MEMBERS_FILE = "members.json"


@dataclass(frozen=True)
class Replacements:
    """The replacements of a study, before anything is trained.

    Attributes:
        parent: the parent.
        names: costs of the predicted front.
        limits: limits of the combinations.
        alternatives: replacements that have these costs.
        unsupported: replacements that the export format does not support, with the reason.
    """

    parent: Parent
    names: tuple[str, ...]
    limits: tuple[Constraint, ...]
    alternatives: tuple[Alternative, ...]
    unsupported: Mapping[Alternative, str]

    @classmethod
    def of(cls, spec: StudySpec, evaluator: Evaluator) -> Replacements:
        """List the replacements of a study.

        Raises:
            UserError: no block has one, the export format does not support the parent, or no
                combination meets an upper limit.
        """
        parent = Parent.from_architecture(spec.space.single_architecture("parent: it"))
        listed = list_alternatives(parent, spec.replacements or default_alternatives(parent))
        limits = collect_limits(spec.space, spec.budget)
        names = predicted_costs((objective.name for objective in spec.objectives), limits)
        costs = cost_deltas(parent, listed, names, evaluator.protocol)
        if not costs.deltas:
            raise UserError("replace: the export format supports none of the replacements: "
                            f"{next(iter(costs.unsupported.values()))}", key="replace",
                            code="bad-value")
        check_limits(parent, costs, limits)
        return cls(parent, costs.names, limits, tuple(costs.deltas), costs.unsupported)

    def describe(self) -> list[str]:
        """Describe the numbers of replacements in lines."""
        lines = [f"Parent {self.parent.architecture.id}: "
                 f"{format_count(len(self.alternatives), 'replacement')} of its blocks"]
        if self.unsupported:
            lines.append(f"  left out, because the export format does not support them: "
                         f"{', '.join(alternative.name for alternative in self.unsupported)}")
        return lines


def check_limits(parent: Parent, costs: CostDeltas, limits: Sequence[Constraint]) -> None:
    """Check that the cheapest combination meets each upper limit on a cost that adds up.

    Raises:
        UserError: it does not. The message names the smallest cost.
    """
    bounds = upper_bounds(limits)
    for index, name in enumerate(costs.names):
        deltas = {alternative: [changes[index]] for alternative, changes in costs.deltas.items()}
        front = solve(parent.sizes, list(deltas), dict.fromkeys(deltas, 0.0), deltas)
        smallest = costs.parent[index] + float(front.costs.min())
        if smallest > bounds.get(name, math.inf):
            raise UserError(f"budget: no combination of replacements meets it; the smallest {name} "
                            f"is {smallest:,.0f}", help="raise the budget, or add smaller sizes to "
                            "`replace`", key="budget", code="budget-unmet")


def compress_parent(replacements: Replacements, spec: StudySpec, study: StudyDir,
                    protocol: Protocol, parent_folder: Path, runner: Runner,
                    console: Console) -> StudySpec:
    """Make the library of replacements, solve for the front, and return the study with its trials.

    The first trial has the lowest predicted loss within the limits; the others cost less, in
    geometric steps of the first cost, with a predicted loss of at most ``MAX_LOSS_RATIO`` times
    that of the parent.

    Raises:
        UserError: a job failed, or no combination meets the limits.
        KeyboardInterrupt: progress is kept.
    """
    report = partial(print_text, console=console)
    for line in replacements.describe():
        report(line)
    parent = replacements.parent
    folder = spec.out / BLOCKS_FOLDER
    library = _make_library(spec, replacements, folder, parent_folder, runner, console, protocol)
    prediction, rows = predict_front(parent, library, replacements.names, replacements.limits,
                                     protocol)
    useful = [row for row in rows
              if prediction.loss_of(row) <= MAX_LOSS_RATIO * prediction.parent_loss]
    # With rungs, the compute of ``trials`` full-budget runs is spent on more combinations.
    count = round(spec.rungs.expected_counts(spec.trials)[0])
    chosen = geometric_rows(prediction, useful or rows[:1], count)
    checkpoint = read_checkpoint(parent_folder)
    vocab = checkpoint.tokenizer.vocab_size
    architectures = []
    initial_models = {}
    for row in chosen:
        combination = prediction.front.combination(row)
        architecture = parent.assemble(combination)
        settings = {**architecture.protocol,
                    "vocab": OWN_VOCABULARY if architecture.vocab else vocab}
        model_folder = folder / MODELS_FOLDER / architecture.id
        write_combination(parent, parent_folder, checkpoint.model.state_dict(), combination,
                          folder, model_folder, vocab)
        changes = parent.describe(combination)
        is_name = combination and len(changes) <= MAX_LABEL_LENGTH
        label = changes if is_name else f"combination {architecture.id}"
        predictions = {"predicted.loss": prediction.loss_of(row)}
        architectures.append(FixedArchitecture(label, replace(architecture, protocol=settings), {},
                                               predictions=predictions))
        initial_models[label] = str(model_folder.absolute())
    write_json(folder / MEMBERS_FILE, [prediction.to_dict(row) for row in chosen])
    report(f"Predicted front of {format_count(len(prediction.front), 'combination')}, "
           f"{len(rows):,} within the limits; {format_count(len(chosen), 'combination')} to "
           f"fine-tune. Replacements and checks took {library.cpu_seconds / 60:.1f} CPU-minutes")
    study.update_meta(architectures=tuple(initial_models), total_trials=len(chosen))
    assert spec.architectures is not None, "a study of this type has fixed architectures"
    return spec.replace(trials=0, initial_models=initial_models, architectures=replace(
        spec.architectures, architectures=tuple(architectures), base=architectures[0].label))


class LibraryJobs(FolderJobs):
    """Jobs of layers of the parent, or of combinations."""

    def fail(self, job: TrainingJob, reason: str) -> None:
        """Stop the study, which needs all replacements."""
        raise UserError(f"{job.folder.name}: its replacements failed: {reason}",
                        code="replacements-failed")


def _make_library(spec: StudySpec, replacements: Replacements, library: Path, parent_folder: Path,
                  runner: Runner, console: Console, protocol: Protocol) -> ScoredLibrary:
    """Make all replacements in jobs of the runner, and write their scores to one file.

    Random combinations, and pairs in neighboring layers, are measured, too.
    """
    parent = replacements.parent
    alternatives = replacements.alternatives
    common: JobFile = {"threads": spec.resources.threads_per_trial, "nice": spec.resources.nice,
                       "data": spec.data.replace(distilled=None, mix_distilled=False,
                                                soft_targets=None)
                       .with_absolute_paths().model_dump(), "cache": str(default_cache())}

    def run(jobs: Mapping[Path, BlocksJob], result_type: type[T], description: str,
            total: int) -> list[T]:
        unfinished = [folder for folder in jobs if not (folder / RESULT_FILE).exists()]
        for folder in unfinished:
            write_json(folder / "job.json", {
                **common, "blocks": {**jobs[folder], "parent": str(parent_folder.absolute())}})

        def progress() -> tuple[str, float]:
            done = sum(ProgressFile(folder).read().done or 0 for folder in jobs)
            return f"{done} of {total}", done / max(total, 1)

        if unfinished:
            with progress_display(description, progress, console):
                LibraryJobs(unfinished, runner, spec.attempts, result_type).run_jobs()
        return [read_json(folder / RESULT_FILE, result_type) for folder in jobs]

    results = run({
        layer_folder(library, stack, layer).absolute(): {
            "stack": stack, "layer": layer, "fit": spec.fit.model_dump(),
            "alternatives": [asdict(alternative) for alternative in alternatives]}
        for stack in ("encoder", "decoder") for layer in range(len(parent.sizes[f"{stack}.ffn"]))},
        LayerResult, "replacements are made and scored", len(alternatives))

    def measure(name: str, combinations: Sequence[Sequence[Alternative]],
                description: str) -> MeasuredResult:
        return run({(library / name).absolute(): {
            "combinations": [[asdict(alternative) for alternative in combination]
                             for combination in combinations]}},
            MeasuredResult, description, len(combinations))[0]

    measured = measure(CHECKS_FOLDER,
                       random_combinations(parent, alternatives, spec.fit.checks, spec.seed),
                       "random combinations are measured")
    scores = {score.alternative: score for result in results for score in result.scores}
    own_scores = [scores[alternative] for alternative in alternatives]
    scored = ScoredLibrary(
        dict(parent.architecture.config), results[0].parent_loss, alternatives,
        tuple(score.rise for score in own_scores),
        tuple(score.standard_error for score in own_scores),
        sum(result.cpu_seconds for result in results) + measured.cpu_seconds,
        measured.combinations)
    if spec.fit.interactions:
        prediction, _ = predict_front(parent, scored, replacements.names, (), protocol)
        pairs = measure(PAIRS_FOLDER, frequent_pairs(prediction.front, spec.fit.interactions),
                        "pairs in neighboring layers are measured")
        scored = replace(scored, pairs=pairs.combinations,
                         cpu_seconds=scored.cpu_seconds + pairs.cpu_seconds)
    write_json(library / SCORES_FILE, asdict(scored))
    return scored
