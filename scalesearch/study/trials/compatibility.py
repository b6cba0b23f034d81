"""Changes of a study file since its study began, and their meaning for its trials."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from scalesearch.errors import UserError
from scalesearch.study.trials.study_meta import StudyMeta, TeacherMeta
from scalesearch.study.trials.trial import Origin, Params, State
from scalesearch.study.trials.trials import Trials
from scalesearch.train.recipe import fill_defaults
from scalesearch.train.recipe_space import override_keys

# What changes which candidates are looked for, and not what a trained one is worth: numbers stay
# comparable.
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
}
# What changes what comes of training the same architecture.
TRAINING_FIELDS = {"seed": "the training seed"}


class StudyChangedError(UserError):
    """A study cannot go on as it was.

    ``can_fork``: what is finished may be taken over into another one.
    """

    code = "study-changed"

    def __init__(self, message: str, can_fork: bool = False) -> None:
        super().__init__(message)
        self.can_fork = can_fork


def check_unchanged(folder: Path, old: StudyMeta, new: StudyMeta) -> None:
    """Refuses a study that has changed since it began in ``folder``, from ``old`` to ``new``.

    Raises Changed.
    """
    trained = training_differences(old, new)
    changed = [*_differing(SEARCH_FIELDS, old, new), *trained]
    if not trained and _without_searched_keys(old.recipe, old, new) != _without_searched_keys(
            new.recipe, old, new):
        changed.append("what the recipe measures")
    if not changed:
        return
    begun = f"{folder}: since this study began, {_join_words(changed)} changed"
    if new.type != "search":
        raise StudyChangedError(f"{begun}. Undo that, or start another study with --out")
    if trained:
        raise StudyChangedError(f"{begun}, so old and new candidates would not compare. Undo that, "
                                "or start another study with --out")
    raise StudyChangedError(f"{begun}. Undo that, or start another study with --out, or go on in "
                            "another folder with those finished candidates that still count, which "
                            "changes nothing here: --fork FOLDER", can_fork=True)


def check_references_unchanged(place: Path, trials: Trials,
                               identities: Mapping[str, str | None]) -> None:
    """Refuses references whose names were trained as something else than ``identities`` (name to
    identity). Raises Changed."""
    for trial in trials.with_origin(Origin.REFERENCE):
        # nothing may lose what it trains
        removed = trial.identity if trial.state != State.PENDING else None
        if identities.get(str(trial.label), removed) == trial.identity:
            continue
        what = "is another architecture or recipe now" if trial.label in identities else \
            "is no longer there, and was in training"
        raise StudyChangedError(f"{place}: since this study began, `{trial.label}` changed: it "
                                f"{what}. Undo that, give the new one a name of its own, or start "
                                "another study with --out")


def training_differences(old: StudyMeta, new: StudyMeta) -> list[str]:
    """Differences that make old trials' numbers incomparable with new ones, in words."""
    # measured afterwards
    before, after = (_without_searched_keys({**one.recipe, "measure": None}, old, new)
                     for one in (old, new))
    recipe = ["the training recipe"] if before != after else []
    data = ["the data"] if old.data.hash != new.data.hash else []
    teacher = ["the teacher"] if _teacher(old) != _teacher(new) else []
    # in studies that began before it was written down
    known = old.processes is not None and new.processes is not None
    processes = [
        "the number of processes a trial"] if known and old.processes != new.processes else []
    return recipe + _differing(TRAINING_FIELDS, old, new) + processes + teacher + data


def _differing(names: dict[str, str], old: StudyMeta, new: StudyMeta) -> list[str]:
    return [words for key, words in names.items() if getattr(old, key) != getattr(new, key)]


def _without_searched_keys(recipe: Params, *studies: StudyMeta) -> Params:
    """A recipe without what any of the studies asks."""
    return override_keys(fill_defaults(recipe),
                         {key: None for study in studies for key in study.recipe_space})


def _teacher(study: StudyMeta) -> TeacherMeta | None:
    """A study's teacher, with the fields that recipes have had only since."""
    teacher = study.teacher
    return replace(teacher,
                   recipe=fill_defaults(teacher.recipe)) if teacher and teacher.recipe else teacher


def _join_words(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
