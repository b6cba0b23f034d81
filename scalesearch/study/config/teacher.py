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

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scalesearch.space.syntax.nodes import Table, Text
from scalesearch.study.config.fields import Sections, written
from scalesearch.study.config.objectives import unseen
from scalesearch.train.recipe import Recipe

NONE = "none"
OF_A_NEW_ONE = ("file", "set", "recipe", "seed")
KEYS = ("folder", *OF_A_NEW_ONE, "beam", "length_penalty", "mix")


@dataclass(frozen=True)
class TeacherSpec:
    """Who teaches, and how its translations are made.

    Attributes:
        folder: of a finished training; None where the teacher is to be trained.
        file, set: its architecture, as a reference's: a file's, or the answers in a file or in the study's space.
        recipe: how it is trained; None for the study's.
        seed: of its training.
        beam, length_penalty: of the search for its translations.
        mix: candidates learn from the real pairs as well.
    """

    folder: str | None = None
    file: str | None = None
    set: dict[str, str] = field(default_factory=dict)
    recipe: Recipe | None = None
    seed: int = 1
    beam: int = 5
    length_penalty: float = 1.0
    mix: bool = False


def read_teacher(top: Sections) -> TeacherSpec | None:
    """The teacher that a study file names; what is wrong with it goes to the file's problems."""
    node = top.node("teacher")
    if node is None or (isinstance(node, Text) and node.text == NONE):
        return None
    data = top.value("data")
    if isinstance(data, dict) and data.get("distilled"):
        top.complain(node.here, "teacher: the data are a teacher's translations already (`distilled`)",
                     "remove one of the two")
    if isinstance(node, Text) and node.text:
        return TeacherSpec(node.text)
    if not isinstance(node, Table):
        top.complain(node.here, "a teacher is the folder of a finished training, or an architecture to train",
                     "such as `teacher: runs/big`, or `teacher: {set: {encoder.depth: 6}}`")
        return None
    part = top.part("teacher", KEYS)
    _check(part)
    return TeacherSpec(part.text("folder"), part.text("file"), _answers(part), _recipe(part), part.whole("seed", 1),
                       part.whole("beam", 5, 1), part.number("length_penalty", 1.0), _mix(part))


def describe_taught(facts: Mapping[str, Any]) -> str:
    """One line about a teacher that has taught: who it is, how good, and what it took; ``facts`` as in records."""
    scored = ", ".join(f"{bleu:.1f} on {split}" for split, bleu in facts["bleu"].items())
    made, mixed = facts["translations"], ", and from the real pairs" if facts["mix"] else ""
    return (f"Teacher: {facts['architecture']}, {facts['params']:,} params, BLEU {scored} ({facts['decode']}), "
            f"{facts['cpu_seconds'] / 60:.1f} CPU-minutes; candidates learned from its translations of "
            f"{made['pairs']:,} sentences ({made['decode']}, {made['cpu_seconds'] / 60:.1f} CPU-minutes){mixed}.")


def _check(part: Sections) -> None:
    """Which keys go together."""
    place = part.table.place
    beside = [key for key in OF_A_NEW_ONE if part.has(key)]
    if part.has("folder") and beside:
        part.complain(place, f"teacher: `folder` is a finished training, which has its own {', '.join(beside)}",
                      f"remove `folder`, or {', '.join(beside)}")
    if not any(part.has(key) for key in ("folder", "file", "set")):
        part.complain(place, "teacher: neither a folder nor an architecture is given",
                      "give `folder`, or `file` or `set` or both")


def _answers(part: Sections) -> dict[str, str]:
    given = part.value("set") or {}
    if not isinstance(given, dict):
        part.complain(part.table.place, "teacher: set: expected answers such as `{encoder.depth: 6}`")
        return {}
    return {key: written(value) for key, value in given.items()}


def _recipe(part: Sections) -> Recipe | None:
    if not part.has("recipe"):
        return None
    return part.trying("recipe", lambda: unseen(Recipe.from_mapping(part.value("recipe") or {})))


def _mix(part: Sections) -> bool:
    value: Any = part.value("mix", False)
    if not isinstance(value, bool):
        part.complain(part.table.place, f"teacher: mix: expected yes or no, found {value!r}")
    return value is True
