"""Import of trials that another study has trained: their evaluation and the copy of their files."""

import shutil
from dataclasses import replace
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.files import read_json, write_json
from scalesearch.study.trials.evaluator import Evaluator
from scalesearch.study.trials.record import Record
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Params, State, Trial
from scalesearch.train.recipe import RESUME_FREE_KEYS, fill_defaults
from scalesearch.train.recipe_space import override_keys

IGNORED_PATTERNS = (".*", "progress.*", "job.json", "record.json", "crash.txt", "*.part")
# Record fields that are taken from the importing study.
STUDY_RECORD_KEYS = ("study", "space_hash", "protocol", "objectives")
UNFINISHED_REASONS = {State.PENDING: "it is not finished",
                      State.PAUSED: "it is not finished: it is paused at a rung"}


def evaluate_imported(study: StudyDir, old: Trial,
                      evaluator: Evaluator) -> tuple[Trial, Record]:
    """Evaluate a finished trial of another study; return the new trial and the record.

    Costs and constraints are computed again. The new trial has no values; its ``source`` names the
    old one. If its recipe is outside the recipe space, it gets the default recipe parameters.

    Args:
        study: of the trial, loaded.
        old: the trial.
        evaluator: of the importing study.

    Raises:
        UserError: the trial cannot be imported.
    """
    if old.state == State.FAILED:
        raise UserError(f"it failed: {old.reason}", code="trial-not-imported")
    record = study.record(old)
    if old.state != State.COMPLETE or record is None:
        raise UserError(UNFINISHED_REASONS.get(old.state, "its record is missing"),
                        code="trial-not-imported")
    params = params_in_space(evaluator, old)
    if params is None:
        raise UserError("it does not fit this space", code="outside-space")
    folder = study.trial_folder(old)
    recipe = (evaluator.recipe.params_of_recipe(record.get("recipe", {}))
              or evaluator.recipe.default_params({}))
    new = evaluator.evaluate({**params, **recipe})
    # None: it cannot be built with the costs of this study; `reason` holds the cause.
    if new.architecture not in (None, old.architecture):
        raise UserError(f"{folder / 'architecture.yaml'} describes {new.architecture} in this "
                        f"version of scalesearch, and {old.architecture} was trained",
                        code="other-architecture")
    source = {**trial_source(study), "trial": old.number, "folder": str(folder.resolve())}
    return replace(new, wall_seconds=old.wall_seconds, efforts=old.efforts, source=source), record


def params_in_space(evaluator: Evaluator, trial: Trial) -> Params | None:
    """Return the params of this space for the architecture of ``trial``; None if it has none."""
    space = evaluator.space
    try:
        values = space.resolve(space.replay_values(trial.config))
        is_same = space.architecture(values).id == trial.architecture
    except UserError:
        return None
    return values.params if is_same else None


def is_same_recipe(record: Record, trial: Trial, recipe: Params) -> bool:
    """Whether ``record`` was trained by the recipe of ``trial`` in a study with ``recipe``.

    Keys that do not change the training result are ignored.
    """
    ignored = (*RESUME_FREE_KEYS, "measure")
    recorded, new = ({key: value for key, value in fill_defaults(keys).items()
                      if key not in ignored}
                     for keys in (record.get("recipe", {}),
                                  override_keys(recipe, trial.recipe_params)))
    return recorded == new


def trial_source(study: StudyDir) -> dict[str, str]:
    """Return the fields of ``Trial.source`` that name the study of origin."""
    return {"study": study.meta.name, "id": study.meta.id, "folder": str(study.folder.resolve()),
            "space": study.meta.space_hash}


def import_trial(study: StudyDir, trial: Trial, shared: Params) -> Trial:
    """Add a trial of another study: copy its files, write its record, then log the event.

    Args:
        study: the importing study.
        trial: with its ``source``.
        shared: record fields of the importing study.

    Raises:
        UserError: the folder of the source is gone.
    """
    assert trial.source is not None, "an imported trial has a source"
    trial = replace(trial, number=study.trials.next_number, state=State.COMPLETE)
    source = Path(trial.source["folder"])
    target = study.trial_folder(trial)
    if not (source / "record.json").is_file():
        raise UserError(f"{source}: the trial to import is gone. Restore it, or start another "
                        "study with --out", code="source-trial-missing")
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*IGNORED_PATTERNS),
                    dirs_exist_ok=True)
    record = read_json(source / "record.json", dict)
    own_fields = {key: shared[key] for key in STUDY_RECORD_KEYS if key in shared}
    write_json(target / "record.json",
               {**record, **trial.to_json(), "seed": record["seed"], **own_fields})
    return study.propose(trial)
