"""Changes of a study file since the study started, and their effect on its trials."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from scalesearch.errors import UserError, option
from scalesearch.studies.trials.study_meta import StudyMeta
from scalesearch.studies.trials.trial import Origin, Params, State
from scalesearch.studies.trials.trials import Trials
from scalesearch.training.recipe import fill_defaults
from scalesearch.training.recipe_space import override_keys

# Fields that change the search but not the results of training: values stay comparable.
SEARCH_FIELDS = {
    "space_hash": "the space",
    "objectives": "the objectives",
    "protocol": "the cost protocol",
    "limits": "the limits",
    "sampler": "the sampler",
    "rungs": "the rungs",
    "warm_start": "the warm start",
    "type": "the type of the study",
    "recipe_space": "the recipe's parameters",
    "compression": "the replacements of blocks",
}
# Fields that change the results of training the same architecture.
TRAINING_FIELDS = {"seed": "the training seed", "processes": "the number of processes per trial"}


class StudyChangedError(UserError):
    """A study cannot be resumed because it has changed."""

    code = "study-changed"


def check_unchanged(folder: Path, old: StudyMeta, new: StudyMeta) -> None:
    """Check that a study has not changed since it started.

    Args:
        folder: folder of the study.
        old: facts of the study when it started.
        new: its facts now.

    Raises:
        StudyChangedError: it has changed.
    """
    differences = training_differences(old, new)
    changed = [*_differing(SEARCH_FIELDS, old, new), *differences]
    if not differences and _without_searched_keys(old.recipe, old, new) != _without_searched_keys(
            new.recipe, old, new):
        changed.append("the measurements of the recipe")
    if not changed:
        return
    another_study = f"start another study with {option('out')}"
    words = " and ".join(filter(None, (", ".join(changed[:-1]), changed[-1])))
    problem = f"{folder}: since this study started, {words} changed"
    if new.type != "search":
        raise StudyChangedError(f"{problem}. Undo the change, or {another_study}")
    if differences:
        raise StudyChangedError(f"{problem}, so old and new candidates are not comparable. Undo "
                                f"the change, or {another_study}")
    raise StudyChangedError(f"{problem}. Undo the change, or {another_study}. With "
                            f"warm_start={folder}, it imports the finished candidates that fit")


def check_references_unchanged(place: Path, trials: Trials,
                               identities: Mapping[str, str | None]) -> None:
    """Check that references still have the architecture and recipe of their runs.

    Args:
        place: folder of the study.
        trials: trials of the study.
        identities: present identity of each reference, by name.

    Raises:
        StudyChangedError: a reference has changed.
    """
    for trial in trials.with_origin(Origin.REFERENCE):
        # a reference may be removed unless it is in training
        removed = trial.identity if trial.state != State.PENDING else None
        if identities.get(str(trial.label), removed) == trial.identity:
            continue
        change = ("has another architecture or recipe" if trial.label in identities
                  else "was removed, but is in training")
        raise StudyChangedError(f"{place}: since this study started, `{trial.label}` changed: it "
                                f"{change}. Undo the change, give the new reference another name, "
                                f"or start another study with {option('out')}")


def training_differences(old: StudyMeta, new: StudyMeta) -> list[str]:
    """Describe differences that make the results of old and new trials incomparable."""
    # `measure` has no effect on training
    before, after = (_without_searched_keys({**meta.recipe, "measure": None}, old, new)
                     for meta in (old, new))
    teachers = [replace(meta.teacher, recipe=fill_defaults(meta.teacher.recipe))
                if meta.teacher and meta.teacher.recipe else meta.teacher for meta in (old, new)]
    return [*(["the training recipe"] if before != after else []),
            *_differing(TRAINING_FIELDS, old, new),
            *(["the teacher"] if teachers[0] != teachers[1] else []),
            *(["the data"] if old.data.hash != new.data.hash else [])]


def _differing(names: dict[str, str], old: StudyMeta, new: StudyMeta) -> list[str]:
    differing = []
    for key, words in names.items():
        before = getattr(old, key)
        after = getattr(new, key)
        if before == after:
            continue
        if key == "protocol":
            changed = [name for name in before | after if before.get(name) != after.get(name)]
            words += f" ({', '.join(changed)})"
        differing.append(words)
    return differing


def _without_searched_keys(recipe: Params, *studies: StudyMeta) -> Params:
    """Return a recipe without the keys that any of the studies searches."""
    return override_keys(fill_defaults(recipe),
                         {key: None for study in studies for key in study.recipe_space})
