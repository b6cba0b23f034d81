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

# What changes which candidates are looked for, and not what a trained one is worth: numbers stay comparable.
SEARCHED = {
    "space": "the space",
    "objectives": "the objectives",
    "protocol": "the cost protocol",
    "limits": "the limits",
    "sampler": "the sampler",
    "rungs": "the rungs",
    "warm_start": "the warm start",
    "kind": "the kind of study",
    "questions": "the recipe's questions",
}
# What changes what comes of training the same architecture.
TRAINED = {"seed": "the training seed"}


class Changed(UserError):
    """A study cannot go on as it was. ``fork``: what is finished may be taken over into another one."""

    code = "study-changed"

    def __init__(self, message: str, fork: bool = False) -> None:
        super().__init__(message)
        self.fork = fork


def refuse_a_changed(place: Path, old: StudyMeta, new: StudyMeta) -> None:
    """Refuses a study that has changed since it began in ``place``, from ``old`` to ``new``. Raises Changed."""
    trained = trained_otherwise(old, new)
    changed = [*_differing(SEARCHED, old, new), *trained]
    if not trained and _fixed(old.recipe, old, new) != _fixed(new.recipe, old, new):
        changed.append("what the recipe measures")
    if not changed:
        return
    begun = f"{place}: since this study began, {_and(changed)} changed"
    if new.kind != "search":
        raise Changed(f"{begun}. Undo that, or start another study with --out")
    if trained:
        raise Changed(f"{begun}, so old and new candidates would not compare. Undo that, or start another study with "
                      "--out")
    raise Changed(f"{begun}. Undo that, or start another study with --out, or go on in another folder with those "
                  "finished candidates that still count, which changes nothing here: --fork FOLDER", fork=True)


def refuse_other_references(place: Path, trials: Trials, now: Mapping[str, str | None]) -> None:
    """Refuses references whose names were trained as something else than ``now`` (name to identity). Raises Changed."""
    for trial in trials.of(Origin.REFERENCE):
        removed = trial.identity if trial.state != State.PENDING else None  # nothing may lose what it trains
        if now.get(str(trial.label), removed) == trial.identity:
            continue
        what = "is another architecture or recipe now" if trial.label in now else \
            "is no longer there, and was in training"
        raise Changed(f"{place}: since this study began, `{trial.label}` changed: it {what}. Undo that, give the new "
                      "one a name of its own, or start another study with --out")


def trained_otherwise(old: StudyMeta, new: StudyMeta) -> list[str]:
    """Differences that make old trials' numbers incomparable with new ones, in words."""
    before, after = (_fixed({**one.recipe, "measure": None}, old, new) for one in (old, new))  # measured afterwards
    recipe = ["the training recipe"] if before != after else []
    data = ["the data"] if old.data.hash != new.data.hash else []
    teacher = ["the teacher"] if _teacher(old) != _teacher(new) else []
    known = old.processes is not None and new.processes is not None  # in studies that began before it was written down
    processes = ["the number of processes a trial"] if known and old.processes != new.processes else []
    return recipe + _differing(TRAINED, old, new) + processes + teacher + data


def _differing(names: dict[str, str], old: StudyMeta, new: StudyMeta) -> list[str]:
    return [words for key, words in names.items() if getattr(old, key) != getattr(new, key)]


def _fixed(recipe: Params, *studies: StudyMeta) -> Params:
    """A recipe without what any of the studies asks."""
    return override_keys(fill_defaults(recipe), {key: None for study in studies for key in study.questions})


def _teacher(study: StudyMeta) -> TeacherMeta | None:
    """A study's teacher, with the fields that recipes have had only since."""
    teacher = study.teacher
    return replace(teacher, recipe=fill_defaults(teacher.recipe)) if teacher and teacher.recipe else teacher


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
