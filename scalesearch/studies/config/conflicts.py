"""Keys of a study file that are valid separately but not together."""

from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from scalesearch.pareto import Objective
from scalesearch.spaces import Constraint, Space
from scalesearch.spaces.schema.cost_names import OWN_VOCABULARY, TRAINING_COSTS, find_missing_key
from scalesearch.studies.config.sections import CORPUS_WORD
from scalesearch.studies.config.spec import StudyFile
from scalesearch.tasks import PER_TOKEN_METRICS, TASKS
from scalesearch.training.recipe import RECIPE_KEYS_OF_COSTS

GAIN_FORECASTER = "bayes"


class Conflict(NamedTuple):
    """Problem at a key of the file, with its help."""

    key: str
    message: str
    help: str
    code: str = "given-twice"


def find_conflicts(file: StudyFile, space: Space | None, objectives: Iterable[Objective],
                   given_keys: Container[str]) -> Iterator[Conflict]:
    """Yield the conflicts between the keys of ``file``."""
    recipes = [("recipe", file.recipe),
               ("teacher.recipe", file.teacher.recipe if file.teacher else None)]
    for key, recipe in recipes:
        if recipe is not None and recipe.score_splits == "test":
            scores = f"{key}.score_splits"
            yield Conflict(scores if scores in given_keys else key,
                           "a study selects by validation scores",
                           "set score_splits to `both` or `validation`", code="selection-on-test")
    names = [reference.name for reference in file.references]
    if len(set(names)) < len(names):
        yield Conflict("reference", "two references have the same name",
                       "give each a `name` of its own", code="name-taken")
    address = file.ray.get("address") or file.resources.address
    if file.resources.address not in (None, address):
        yield Conflict("resources.address",
                       f"the cluster is at `{file.resources.address}` here and at `{address}` "
                       "under `ray:`", "keep one")
    if file.data is None:
        return
    if file.teacher is not None and (file.data.distilled or file.data.soft_targets):
        yield Conflict("teacher", "teacher: the data are already the output of a teacher "
                       "(`distilled`, `soft_targets`)", "remove one of the two")
    if space is None:
        return
    if space.protocol.get("vocab") == OWN_VOCABULARY:
        yield from _find_vocabulary_conflicts(file, objectives, given_keys)
    if file.stop and file.sampler.name not in ("", GAIN_FORECASTER):
        yield Conflict("stop", f"`{file.sampler.name}` does not predict a gain",
                       f"remove one of the two, or use `{GAIN_FORECASTER}`")
    if file.protocol.get("lengths") == CORPUS_WORD:
        for key in ("source", "target", "length"):
            if f"protocol.{key}" in given_keys:
                yield Conflict(f"protocol.{key}",
                               "`lengths: corpus` sets the lengths of the sentences",
                               "remove one of the two")
        if TASKS[file.data.task].file_format == "text":
            yield Conflict("protocol.lengths", f"{file.data.task} has windows, not sentences",
                           "give `length`")


def _find_vocabulary_conflicts(file: StudyFile, objectives: Iterable[Objective],
                               given_keys: Container[str]) -> Iterator[Conflict]:
    """Yield the conflicts of a space whose architectures have their own vocabularies."""
    reason = "each architecture of the space has its own vocabulary, under `vocab`"
    for key in ("data.vocab", "data.tokenizer", "protocol.vocab"):
        is_corpus = key == "protocol.vocab" and file.protocol.get("vocab") == CORPUS_WORD
        if key in given_keys and not is_corpus:
            yield Conflict(key, reason, "remove it here, or there")
    if file.teacher:
        yield Conflict("teacher", f"{reason}, and a teacher has one vocabulary",
                       "translate with `scalesearch distill`, and name its output under data: "
                       "distilled")
    for objective in objectives:
        if objective.name in PER_TOKEN_METRICS:
            yield Conflict(f"objectives.{objective.name}",
                           f"`{objective.name}` is a mean over tokens, and {reason}",
                           "use `loss_per_char`")


def find_missing_settings(file: StudyFile, space: Space, objectives: Iterable[Objective],
                          limit: Constraint | None,
                          searched_keys: Container[str]) -> Iterator[Conflict]:
    """Yield the costs that need a key of the protocol or the recipe which is not set.

    Args:
        limit: the budget.
        searched_keys: keys of the recipe that are searched.
    """
    protocol = {**space.protocol, **file.protocol}
    places = {objective.name: f"objectives.{objective.name}" for objective in objectives}
    for cost in limit.costs if limit else ():
        places.setdefault(cost, "budget")
    recipe_key = next((key for key in RECIPE_KEYS_OF_COSTS if key in searched_keys), None)
    for cost, place in places.items():
        if cost not in TRAINING_COSTS:
            if key := find_missing_key(cost, protocol):
                yield Conflict(place, f"`{cost}`: the protocol names no {key}",
                               f"add `protocol: {{ {key}: … }}`", code="protocol-incomplete")
        elif recipe_key:
            yield Conflict(place, f"`{cost}` needs one value of recipe.{recipe_key}, which the "
                           "study searches", f"set one value of recipe.{recipe_key}",
                           code="open-parameters")
        elif file.recipe is not None and find_missing_key(
                cost, file.recipe.protocol_settings(epoch_pairs=1)):
            yield Conflict(place, f"`{cost}`: the recipe is limited by time, which has no number "
                           "of MACs", "set recipe.steps, tokens or epochs, or use macs.update",
                           code="protocol-incomplete")
