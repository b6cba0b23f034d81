"""What a study file says now that it did not say when the study began, and what that means for its candidates."""

from collections.abc import Mapping, Sequence
from typing import Any

from scalesearch.errors import UserError
from scalesearch.study.trials.trials import PENDING, REFERENCE, Ledger

# What changes which candidates are looked for, and not what a trained one is worth: numbers stay comparable.
ASKED = {
    "space": "the space",
    "objectives": "the objectives",
    "protocol": "the cost protocol",
    "limits": "the limits",
    "proposer": "the proposer",
    "rungs": "the rungs",
    "warm_start": "the warm start",
    "kind": "the kind of study",
}
# What changes what comes of training the same architecture.
TRAINED = {
    "recipe": "the training recipe",
    "seed": "the training seed",
    "teacher": "the teacher",
}


class Changed(UserError):
    """A study cannot go on as it was. ``fork``: what is finished may be taken over into another one."""

    def __init__(self, message: str, fork: bool) -> None:
        super().__init__(message)
        self.fork = fork


def refuse_a_changed(place: Any, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raises Changed where the study in ``place``, begun as ``old`` says, is not the one that ``new`` describes."""
    params = [words for key, words in ASKED.items() if old.get(key) != new.get(key)]
    trained = trained_otherwise(old, new)
    measured = ["what the recipe measures"] if not trained and old["recipe"] != new["recipe"] else []
    found = params + trained + measured
    if not found:
        return
    begun = f"{place}: since this study began, {_and(found)} changed"
    if new.get("kind"):
        raise Changed(f"{begun}. Undo that, or start another study with --out", fork=False)
    if trained:
        raise Changed(f"{begun}, so old and new candidates would not compare. Undo that, or start another study with "
                      "--out", fork=False)
    raise Changed(f"{begun}. Undo that, or start another study with --out, or go on in another folder with those "
                  "finished candidates that still count, which changes nothing here: --fork FOLDER", fork=True)


def refuse_other_references(place: Any, ledger: Ledger, references: Sequence[Any]) -> None:
    """Raises Changed where a name now means another architecture than the one that was trained under it."""
    now = {reference.label: reference.architecture.id for reference in references}
    for trial in ledger.trials.values():
        if trial.origin != REFERENCE or now.get(trial.label, trial.id if trial.state != PENDING else None) == trial.id:
            continue
        what = "is another architecture now" if trial.label in now else "is no longer there, and was in training"
        raise Changed(f"{place}: since this study began, `{trial.label}` changed: it {what}. Undo that, give the new "
                      "one a name of its own, or start another study with --out", fork=False)


def trained_otherwise(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What makes the numbers of old candidates other numbers than new ones would have, in words."""
    before, now = (dict(meta, recipe=_unmeasured(meta["recipe"])) for meta in (old, new))
    found = [words for key, words in TRAINED.items() if before.get(key) != now.get(key)]
    return found + ["the data"] * (old["data"]["hash"] != new["data"]["hash"])


def _unmeasured(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe without what is measured of a model once it is trained."""
    return {key: value for key, value in recipe.items() if key != "measure"}


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
