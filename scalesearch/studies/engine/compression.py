"""Compression studies: the parent's blocks are replaced, and the best combinations are fine-tuned.

::

    runs/small/teacher/            the parent, unless the user names a finished training run
    runs/small/blocks/encoder.1/   replacements of blocks, one job per layer
    runs/small/blocks/front.json   the predicted front, and the combinations that become trials
    runs/small/blocks/models/ID/   combinations with the weights of the library, as training runs

The jobs are those of the study's runner: they run on the same machines, resume after an
interruption, and are not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from scalesearch.compression.alternatives import (
    Alternative,
    CostDeltas,
    Parent,
    cost_deltas,
    default_alternatives,
    evaluate_combination,
    list_alternatives,
)
from scalesearch.compression.library import (
    LayerResult,
    layer_folder,
    read_scores,
    write_combination,
)
from scalesearch.compression.solver import PredictedFront, solve
from scalesearch.data import default_cache
from scalesearch.errors import UserError
from scalesearch.files import read_json, write_json
from scalesearch.spaces.schema.cost_names import COST_NAMES, OWN_VOCABULARY
from scalesearch.studies.config.fixed_architectures import ArchitectureSet, FixedArchitecture
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.engine.jobs import JobLoop, reading_result
from scalesearch.studies.executors.base import Runner, TrainingJob
from scalesearch.studies.monitor.running import TEACHER_FOLDER
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.record import JobFile
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.terminal import print_text
from scalesearch.training.checkpoint import read_checkpoint
from scalesearch.training.result import RESULT_FILE

BLOCKS_FOLDER = "blocks"
MODELS_FOLDER = "models"
FRONT_FILE = "front.json"


def list_jobs(parent: Parent) -> list[tuple[str, int]]:
    """Stack and layer of every job."""
    return [(stack, layer) for stack in ("encoder", "decoder")
            for layer in range(len(parent.sizes[f"{stack}.ffn"]))]


def compress_parent(spec: StudySpec, study: StudyDir, evaluator: Evaluator, parent_folder: Path,
                    runner: Runner, console: Console) -> StudySpec:
    """Make the library of replacements, solve for the front, and return the study with its trials.

    Raises:
        UserError: a job failed, or no combination meets the limits.
        KeyboardInterrupt: progress is kept.
    """
    report = partial(print_text, console=console)
    parent = Parent.from_architecture(spec.space.single_architecture("parent: it"))
    alternatives = list_alternatives(parent, spec.replacements or default_alternatives(parent))
    library = spec.out / BLOCKS_FOLDER
    report(f"Parent {parent.architecture.id}: {len(alternatives)} replacements of its blocks")
    _run_jobs(spec, parent, alternatives, library, parent_folder, runner)
    parent_loss, scores = read_scores(library)
    scores = {alternative: scores[alternative] for alternative in alternatives}
    names = cost_names(spec)
    costs = cost_deltas(parent, alternatives, names, evaluator.protocol)
    front = solve(parent.sizes, alternatives,
                  {alternative: score.rise for alternative, score in scores.items()}, costs.deltas)
    chosen = choose_members(front, costs, spec, evaluator, parent)
    checkpoint = read_checkpoint(parent_folder)
    rows = []
    initial_models = {}
    members = []
    for row in chosen:
        combination = front.combination(row)
        architecture = parent.assemble(combination)
        protocol = {**architecture.protocol, "vocab": OWN_VOCABULARY if architecture.vocab
                    else checkpoint.tokenizer.vocab_size}
        architecture = replace(architecture, protocol=protocol)
        folder = library / MODELS_FOLDER / architecture.id
        write_combination(parent, parent_folder, checkpoint.model.state_dict(), combination,
                          library, folder, checkpoint.tokenizer.vocab_size)
        label = f"inherited {architecture.id}"
        rows.append(FixedArchitecture(label, architecture))
        initial_models[label] = str(folder.absolute())
        members.append({"id": architecture.id, "predicted_loss": parent_loss + front.loss[row],
                        **dict(zip(names, evaluate_combination(parent, combination, names,
                                                               evaluator.protocol))),
                        "replacements": [alternative.name for alternative in combination]})
    write_json(library / FRONT_FILE, {
        "parent": parent.architecture.id, "parent_loss": parent_loss, "costs": list(names),
        "parent_costs": list(costs.parent), "size": len(front), "members": members,
        "alternatives": [{**asdict(score), "name": alternative.name,
                          "deltas": list(costs.deltas[alternative])}
                         for alternative, score in scores.items()]})
    report(f"Predicted front of {len(front):,} combinations; {len(rows)} of them are fine-tuned")
    study.update_meta(architectures=tuple(row.label for row in rows), total_trials=len(rows))
    assert spec.architectures is not None
    return spec.replace(
        architectures=replace(spec.architectures, architectures=tuple(rows), base=rows[0].label),
        initial_models=initial_models)


def cost_names(spec: StudySpec) -> tuple[str, ...]:
    """Costs of the predicted front: those among the objectives and in the budget."""
    names = [objective.name for objective in spec.objectives if objective.name in COST_NAMES]
    names += spec.budget.costs if spec.budget else ()
    return tuple(dict.fromkeys(names))


def choose_members(front: PredictedFront, costs: CostDeltas, spec: StudySpec,
                   evaluator: Evaluator, parent: Parent) -> list[int]:
    """Choose the combinations that are fine-tuned.

    The first has the lowest predicted loss within the limits. The others have the lowest one below
    the geometric steps from its first cost to the smallest cost of the front.

    Raises:
        UserError: no combination meets the limits.
    """

    def fits(row: int) -> bool:
        architecture = parent.assemble(front.combination(row))
        return not evaluator.evaluate_architecture(architecture).reason

    order = np.argsort(front.loss, kind="stable")
    first = next((int(row) for row in order if fits(int(row))), None)
    if first is None:
        raise UserError("budget: no combination of replacements meets it",
                        help="raise the budget, or add smaller sizes to `replace`", key="budget",
                        code="budget-unmet")
    totals = costs.parent[0] + front.costs[:, 0]
    chosen = [first]
    for limit in np.geomspace(totals[first], totals.min(), max(spec.trials, 1))[1:]:
        row = next((int(row) for row in order if totals[row] <= limit + 1e-9 * limit
                    and int(row) not in chosen and fits(int(row))), None)
        if row is not None:
            chosen.append(row)
    return chosen


class LibraryJobs(JobLoop):
    """Runs one job per layer of the parent."""

    def __init__(self, folders: Sequence[Path], runner: Runner, max_attempts: int) -> None:
        super().__init__(runner, max_attempts)
        self.folders = folders

    def next_job(self) -> TrainingJob | None:
        """Return a layer without a result that is not running."""
        for index, folder in enumerate(self.folders):
            number = -2 - index  # not the number of a trial, or of a teacher's job
            if number not in self.running and not (folder / RESULT_FILE).exists():
                return TrainingJob(number, folder, 1)
        return None

    def collect(self, job: TrainingJob) -> None:
        """Check that the result can be read."""
        with reading_result(job.folder / RESULT_FILE):
            read_json(job.folder / RESULT_FILE, LayerResult)

    def fail(self, job: TrainingJob, reason: str) -> None:
        """Stop the study, which needs all replacements."""
        raise UserError(f"{job.folder.name}: its replacements failed: {reason}",
                        code="replacements-failed")


def _run_jobs(spec: StudySpec, parent: Parent, alternatives: Sequence[Alternative], library: Path,
              parent_folder: Path, runner: Runner) -> None:
    folders = []
    common: JobFile = {"threads": spec.resources.threads_per_trial, "nice": spec.resources.nice,
                       "data": spec.data.replace(distilled=None, soft_targets=None)
                       .with_absolute_paths().model_dump(), "cache": str(default_cache())}
    for stack, layer in list_jobs(parent):
        folder = layer_folder(library, stack, layer).absolute()
        folders.append(folder)
        settings: Mapping[str, Any] = {
            "parent": str(parent_folder.absolute()), "stack": stack, "layer": layer,
            "alternatives": [asdict(alternative) for alternative in alternatives],
            "fit": spec.fit.model_dump()}
        if not (folder / RESULT_FILE).exists():
            write_json(folder / "job.json", {**common, "blocks": settings})
    LibraryJobs(folders, runner, spec.attempts).run_jobs()


def parent_folder_of(spec: StudySpec) -> Path:
    """Folder of the trained parent."""
    assert spec.teacher is not None, "the parent is the teacher"
    folders = spec.teacher.folders
    return Path(folders[0]) if folders else spec.out / TEACHER_FOLDER
