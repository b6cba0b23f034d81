"""Import of trials that another study has trained: what they are in this one, and the copy of what they left."""

import shutil
from dataclasses import replace
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.files import read_json, write_json
from scalesearch.space import read_space
from scalesearch.study.trials.evaluator import Evaluator
from scalesearch.study.trials.record import Record
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Params, State, Trial
from scalesearch.train.recipe import RESUME_FREE_KEYS, fill_defaults
from scalesearch.train.recipe_space import override_keys

IGNORED_PATTERNS = (".*", "progress.*", "job.json", "record.json", "crash.txt", "*.part")
# facts of a record that are those of the study that has it
STUDY_RECORD_KEYS = ("study", "space_hash", "protocol", "objectives")
UNFINISHED_REASONS = {State.PENDING: "it is not finished",
                      State.PAUSED: "it is not finished: it is paused at a rung"}


def evaluate_imported(study: StudyDir, old: Trial, evaluator: Evaluator,
                      allow_outside_space: bool = False) -> tuple[Trial, Record]:
    """A finished trial of ``study`` as ``evaluator`` sees it, without values, and its record.

    Its costs and constraints are computed anew; its ``source`` says where it comes from. Of a
    recipe that does not answer this study's questions it has their defaults.

    Args:
        study: loaded.
        allow_outside_space: also what the space of ``evaluator`` never proposes.

    Raises:
        UserError: the reason against taking it over.
    """
    if old.state == State.FAILED:
        raise UserError(f"it failed: {old.reason}", code="trial-not-imported")
    record = study.record(old)
    if old.state != State.COMPLETE or record is None:
        raise UserError(UNFINISHED_REASONS.get(old.state, "its record is missing"),
                        code="trial-not-imported")
    params = params_in_space(evaluator, old)
    folder = study.trial_folder(old)
    recipe = evaluator.recipe.params_of_recipe(
        record.get("recipe", {})) or evaluator.recipe.default_params({})
    if params is not None:
        new = evaluator.evaluate({**params, **recipe})
    elif allow_outside_space:
        new = evaluator.evaluate_architecture(
            read_space(folder / "architecture.yaml").single_architecture())
        new = replace(new, recipe_params=evaluator.recipe_values(recipe))
    else:
        raise UserError("it does not fit this space", code="outside-space")
    # None: this study's costs refuse it, and `reason` says why
    if new.architecture not in (None, old.architecture):
        raise UserError(f"{folder / 'architecture.yaml'} describes {new.architecture} in this "
                        f"version of scalesearch, and {old.architecture} was trained",
                        code="other-architecture")
    source = {**trial_source(study), "trial": old.number, "folder": str(folder.resolve())}
    return replace(new, wall_seconds=old.wall_seconds, efforts=old.efforts, source=source), record


def params_in_space(evaluator: Evaluator, trial: Trial) -> Params | None:
    """Params by which this space describes the architecture of ``trial``; None where it never does."""
    space = evaluator.space
    try:
        answers = space.resolve(space.replay_values(trial.config))
        same = space.architecture(answers).id == trial.architecture
    except UserError:
        return None
    return answers.params if same else None


def is_same_recipe(record: Record, trial: Trial, recipe: Params) -> bool:
    """Whether ``record`` was trained as ``trial`` would be in a study of ``recipe``, whatever else was measured."""
    theirs, ours = (
        {key: value
         for key, value in fill_defaults(one).items() if key not in (*RESUME_FREE_KEYS, "measure")}
        for one in (record.get("recipe", {}), override_keys(recipe, trial.recipe_params)))
    return theirs == ours


def trial_source(study: StudyDir) -> dict[str, str]:
    """Source of trials that were trained in ``study``."""
    return {"study": study.meta.name, "id": study.meta.id, "folder": str(study.folder.resolve()),
            "space": study.meta.space_hash}


def import_trial(study: StudyDir, trial: Trial, shared: Params) -> Trial:
    """Adds a trial that was trained elsewhere (``trial.source``): its files first, then its record, then the event.

    Raises:
        UserError: its folder is gone.
    """
    assert trial.source is not None, "it comes from somewhere"
    trial = replace(trial, number=study.trials.next_number, state=State.COMPLETE)
    source = Path(trial.source["folder"])
    target = study.trial_folder(trial)
    if not (source / "record.json").is_file():
        raise UserError(f"{source}: the trial to begin with is gone. Put it back, or start another "
                        "study with --out", code="source-trial-missing")
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*IGNORED_PATTERNS),
                    dirs_exist_ok=True)
    record = read_json(source / "record.json", dict)
    here = {key: shared[key] for key in STUDY_RECORD_KEYS if key in shared}
    write_json(target / "record.json",
               {**record, **trial.to_json(), "seed": record["seed"], **here})
    return study.propose(trial)
