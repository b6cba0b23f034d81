"""The ``teacher:`` of a study file, from whose translations every candidate learns.

::

    teacher: runs/big                          # the folder of a finished training; or {folder: runs/big, mix: yes}
    teacher:                                   # or one to be trained first, once, into the study's folder
      file: transformer
      set: { encoder.depth: 6 }
      recipe: { cpu_minutes: 20 }              # the study's own, unless given
      beam: 5
      mix: no
    teacher: none                              # as if the key were not there, for --set
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scalesearch.space.schema.settings import schema_of, setting
from scalesearch.study.config.values import ANSWERS, read_answers
from scalesearch.train.recipe import RECIPE, Recipe

OF_A_NEW_ONE = ("file", "set", "recipe", "seed")


@dataclass(frozen=True)
class TeacherSpec:
    """Teacher of a study, and how its translations are made."""

    folder: str | None = setting(None, "of a finished training", synonyms=("path", "checkpoint"))
    file: str | None = setting(None, "of a teacher to be trained: a space file")
    set: Mapping[str, str] = setting({}, "of a teacher to be trained: answers, in the file or in the study's space",
                                     read=read_answers, form=ANSWERS)
    recipe: Recipe | None = setting(None, "how it is trained; without one, as the candidates are", of=RECIPE,
                                    shown="the study's")
    seed: int = setting(1, "of its training", low=0)
    beam: int = setting(5, "of its translations", synonyms=("beam_size", "num_beams"))
    length_penalty: float = setting(1.0, "of its translations", low=0, synonyms=("lenpen", "alpha"))
    mix: bool = setting(False, "candidates learn from the real pairs as well")


def describe_taught(facts: Mapping[str, Any]) -> str:
    """Describes a teacher in a line: its name, its score, its effort. ``facts`` are as in records."""
    scored = ", ".join(f"{bleu:.1f} on {split}" for split, bleu in facts["bleu"].items())
    made, mixed = facts["translations"], ", and from the real pairs" if facts["mix"] else ""
    return (f"Teacher: {facts['architecture']}, {facts['params']:,} params, BLEU {scored} ({facts['decode']}), "
            f"{facts['cpu_seconds'] / 60:.1f} CPU-minutes; candidates learned from its translations of "
            f"{made['pairs']:,} sentences ({made['decode']}, {made['cpu_seconds'] / 60:.1f} CPU-minutes){mixed}.")


def _conflicts(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """Yields conflicts between keys."""
    beside = [key for key in OF_A_NEW_ONE if key in values]
    if values.get("folder") and beside:
        yield "folder", f"it is a finished training, which has its own {', '.join(beside)}", \
            f"remove `folder`, or {', '.join(beside)}"
    if not any(values.get(key) for key in ("folder", "file", "set")):
        yield "", "neither a folder nor an architecture is given", "give `folder`, or `file` or `set` or both"


TEACHER = schema_of(TeacherSpec, bare="folder", optional=True, check=_conflicts)
