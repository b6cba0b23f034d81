"""Keys of a study file that hold keys of their own: resources, references, seeds, stop, teacher, warm start.

::

    # at most three seeds per candidate, and six more training runs in all
    seeds: {max_per_candidate: 3, extra_runs: 6, confidence: 0.9}
    seeds: 3                                            # the same, with half as many as `trials`; of rows: three each
    # each reference is trained three times
    seeds: {max_per_candidate: 1, references: 3}

    teacher: runs/big                                   # a finished training; or {folder: runs/big, mix: yes}
    teacher: [runs/a, runs/b]                           # several, which translate together
    teacher: {file: transformer, set: {encoder.depth: 6}, recipe: {cpu_minutes: 20}, beam: 5}   # or trained here, once

    stop: {gain: 1%, horizon: 10}                        # once ten more trainings are expected to bring less than that

    warm_start: runs/edge                               # or a list of folders
    warm_start: {from: [runs/edge, runs/old], max_candidates: 5}  # at most five of their fronts are
        trained
        here first

``none`` under any of them is as if the key were not there, for ``--set``.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from scalesearch.pareto.noise import CONFIDENCE
from scalesearch.pareto.objective import Objective
from scalesearch.space.schema.settings import MAX_SEED, REQUIRED, schema_of, setting
from scalesearch.space.syntax.nodes import Node, ScalarNode
from scalesearch.study.config.values import (
    MIN_RAY_AMOUNT,
    PARAMS_FORM,
    ComputeAmount,
    read_amount,
    read_custom,
    read_gain,
    read_params,
    read_texts,
)
from scalesearch.train.recipe import MAX_THREADS, RECIPE_SCHEMA, Recipe

DEFAULT_SEEDS_PER_CANDIDATE = 3
DEFAULT_SEEDS_PER_ARCHITECTURE = 2  # seeds where a mapping does not say how many
NEW_TEACHER_KEYS = ("file", "set", "recipe", "seed")
WARM_START_FILE = "warm.json"  # what a warm start has chosen, in the study's folder
Conflicts = Iterator[tuple[str, str, str | None]]  # key, message, help


@dataclass(frozen=True)
class Resources:
    """Resources of each worker."""

    cpus_per_trial: float = setting(1.0, "CPUs of a worker, for Ray", low=0, unit="CPUs",
                                    synonyms=("cpus", "num_cpus", "cpu", "resources_per_trial"))
    gpus_per_trial: float = setting(0.0, "GPUs of a worker; a fraction shares one", low=0,
                                    unit="GPUs", synonyms=("gpus", "num_gpus", "gpu"))
    threads_per_trial: int = setting(1, "threads of each worker", unit="threads", high=MAX_THREADS,
                                     synonyms=("threads", "num_threads"))
    nice: int = setting(0,
                        "niceness of a worker's processes, which give way to others of the "
                        "machine; one that a cluster gives (Ray's own is 15) is raised at most",
                        low=0, high=19, synonyms=("niceness",))
    custom: dict[str, float] = setting(
        {}, "further resources, by the names in a Ray cluster", read=read_custom,
        expected="a mapping of names to numbers")
    address: str | None = setting(None,
                                  "of a running Ray cluster; `ray: {address: …}` says the same")


@dataclass(frozen=True)
class ReferenceSpec:
    """Reference to an architecture: a file, or the answers ``set`` in a file or in the study's space."""

    name: str = setting("", "what tables call it", default_text="the file's name")
    file: str | None = setting(None, "a space file that leaves nothing open")
    set: Mapping[str, str] = setting({}, "answers, in the file or in the study's space",
                                     read=read_params, expected=PARAMS_FORM)
    recipe: Mapping[str, str] = setting({}, "answers to the recipe's questions", read=read_params,
                                        expected="a mapping such as `{lr: 2e-3}`",
                                        default_text="the first alternative, the middle of a range")


@dataclass(frozen=True)
class Seeds:
    """Limits of further seeds, after the search."""

    max_per_candidate: int = setting(1, "seeds of one candidate, the one of the search counted",
                                     default_text=f"{DEFAULT_SEEDS_PER_CANDIDATE}",
                                     deprecated=("most",), synonyms=("max", "seeds", "repeats"))
    extra_runs: int = setting(0, "full trainings with further seeds in all", low=0,
                              unit="trainings", default_text="half as many as `trials`",
                              deprecated=("trials",), synonyms=("budget",))
    confidence: float = setting(CONFIDENCE,
                                "of the interval that a difference must leave 0 out of, to count "
                                "as more than noise", low=0.5, high=0.9999,
                                synonyms=("alpha", "level"))
    references: int = setting(1,
                              "seeds of each reference or row, on top of `trials` "
                              f"({DEFAULT_SEEDS_PER_ARCHITECTURE} in a mapping of a study of rows)",
                              synonyms=("architectures",))

    @property
    def is_enabled(self) -> bool:
        """Whether anything may be trained again."""
        return self.max_per_candidate > 1 or self.references > 1

    def to_json(self) -> dict[str, float]:
        """For reports; ``references`` only where it says something."""
        return {key: value
                for key, value in asdict(self).items() if key != "references" or value > 1}


SINGLE_SEED = Seeds()


@dataclass(frozen=True)
class StopSpec:
    """When a search ends before its trials are used up."""

    gain: float = setting(0.01, "growth of the front's hypervolume: it ends once less is expected",
                          read=read_gain, expected="a share such as `1%`", default_text="1%",
                          synonyms=("tolerance", "min_delta", "threshold"))
    horizon: ComputeAmount = setting(ComputeAmount(10), "what more would be spent for that",
                                     read=read_amount, default_text="10",
                                     expected="full trainings, or a length of time such as `2h`",
                                     unit="trainings, or a time", deprecated=("within",),
                                     synonyms=("patience",))


@dataclass(frozen=True)
class TeacherSpec:
    """Teacher of a study, from whose translations every candidate learns, and how these are made."""

    folders: tuple[str, ...] = setting(
        (),
        "of a finished training, or a list of several of one "
        "vocabulary, which translate together by the mean of their " "probabilities", key="folder",
        read=read_texts, expected="a folder, or a list of folders", default_text="none",
        synonyms=("path", "checkpoint", "folders"))
    file: str | None = setting(None, "of a teacher to be trained: a space file")
    set: Mapping[str, str] = setting({},
                                     "of a teacher to be trained: answers, in the file or in the "
                                     "study's space", read=read_params, expected=PARAMS_FORM)
    recipe: Recipe | None = setting(None, "how it is trained; without one, as the candidates are",
                                    group_schema=RECIPE_SCHEMA, default_text="the study's")
    seed: int = setting(1, "of its training", low=0, high=MAX_SEED)
    beam: int = setting(5, "of its translations", synonyms=("beam_size", "num_beams"))
    length_penalty: float = setting(1.0, "of its translations", low=0, synonyms=("lenpen", "alpha"))
    mix: bool = setting(False, "candidates learn from the real pairs as well")
    top_k: int = setting(0,
                         "how many of its likeliest tokens at every place candidates learn, too, "
                         "by their recipe's `soft_share`; 0: none", low=0, unit="tokens",
                         deprecated=("soft",),
                         synonyms=("top",))


@dataclass(frozen=True)
class WarmStartSpec:
    """Other studies to begin with."""

    folders: tuple[str, ...] = setting(REQUIRED, "folders of other studies", key="from",
                                       read=read_texts, expected="a folder, or a list of folders",
                                       synonyms=("folders", "studies"))
    max_candidates: int | None = setting(
        None, "how many of their fronts are trained here first at most", low=0, unit="trainings",
        default_text="as many as random candidates at the start", deprecated=("most",),
        synonyms=("max",))

    def to_json(self) -> Mapping[str, object]:
        """JSON that a resumed study must agree with."""
        return {"from": list(self.folders), "max_candidates": self.max_candidates}


def read_seeds(values: Mapping[str, float] | None, node: Node | None, search_trials: int,
               objectives: tuple[Objective, ...], has_fixed_architectures: bool,
               problems: list[tuple[str, str, str]]) -> Seeds:
    """Reads the key ``seeds``.

    Args:
        values: the values under it; None where there are none.
        node: as it stands in the file: ``seeds: 3`` are those of each row where
            ``has_fixed_architectures`` are trained.
        search_trials: trials of the search.
        problems: takes problems, as (key, message, help).
    """
    if values is None:
        return SINGLE_SEED
    if objectives and not any(objective.is_measured for objective in objectives):
        problems.append(("seeds",
                         "seeds: none of the objectives is measured, so another seed gives the "
                         "same numbers", "remove `seeds`, or add a metric to the objectives"))
    if has_fixed_architectures and isinstance(node, ScalarNode):
        return Seeds(references=values.get("max_per_candidate", 1))
    if has_fixed_architectures:
        problems += [(f"seeds.{key}",
                      f"seeds.{key}: it is for a search, and this study trains its rows",
                      "`references` are the seeds of each row")
                     for key in ("max_per_candidate", "extra_runs") if key in values]
        return Seeds(**{"references": DEFAULT_SEEDS_PER_ARCHITECTURE, **values,
                        "max_per_candidate": 1, "extra_runs": 0})
    seeds = Seeds(**{"max_per_candidate": DEFAULT_SEEDS_PER_CANDIDATE,
                     "extra_runs": (search_trials + 1) // 2, **values})
    return seeds if seeds.is_enabled else SINGLE_SEED


def warm_start_problems(warm_start: WarmStartSpec, out: Path) -> Iterator[tuple[str, str]]:
    """Yields problems of the folders, with their help.

    Args:
        out: the study's own folder. Once it holds what was taken from the others, they need not be
            there any more.
    """
    for text in () if (out / WARM_START_FILE).is_file() else warm_start.folders:
        folder = expand_path(text)
        if not (folder / "study.json").is_file():
            problem = f"`{text}` holds no study (no study.json)" if folder.is_dir(
                ) else f"no folder `{text}`"
            yield problem, "give the folder of a study that `scalesearch study run` has made, such as runs/edge"
        elif folder.resolve() == out.resolve():
            yield f"`{text}` is this study's own folder", "give another study's, or go on with --resume"


def expand_path(text: str) -> Path:
    """The folder that a file means: ``~`` and variables are filled in."""
    return Path(os.path.expandvars(os.path.expanduser(text)))


def _resource_conflicts(values: Mapping[str, float]) -> Conflicts:
    for key in ("cpus_per_trial", "gpus_per_trial"):
        amount = values.get(key, 0)
        if 0 < amount < MIN_RAY_AMOUNT:
            yield key, f"{amount:g} is less than Ray counts", f"the least is {MIN_RAY_AMOUNT:g}"
        elif key == "gpus_per_trial" and amount > 1 and amount % 1:
            yield key, "use a whole number above 1", "such as 0.5, 1 or 2"


def _reference_conflicts(values: Mapping[str, object]) -> Conflicts:
    if not values.get("file") and not values.get("set"):
        yield "", "expected a file, answers under `set`, or both", "such as `{name: wide, set: {width: 256}}`"


def _teacher_conflicts(values: Mapping[str, object]) -> Conflicts:
    beside = ", ".join(key for key in NEW_TEACHER_KEYS if key in values)
    if values.get("folder") and beside:
        yield "folder", f"it is a finished training, which has its own {beside}", f"remove `folder`, or {beside}"
    if not any(values.get(key) for key in ("folder", "file", "set")):
        yield "", "neither a folder nor an architecture is given", "give `folder`, or `file` or `set` or both"


def _reference(default_name: str, **values: Any) -> ReferenceSpec:
    return ReferenceSpec(**{"name": Path(values.get("file")
                                         or default_name).name.removesuffix(".yaml")} | values)


RESOURCES_SCHEMA = schema_of(
    Resources, check=_resource_conflicts,
    unsupported=dict.fromkeys(("processes_per_trial", "processes", "world_size", "nproc_per_node"),
                              "it was removed: each trial trains in one process. Train several "
                              "trials at a time with `workers`"))
REFERENCE_SCHEMA = schema_of(ReferenceSpec, shorthand_key="file", check=_reference_conflicts,
                             make=partial(_reference, "reference"))
ARCHITECTURE_SCHEMA = replace(REFERENCE_SCHEMA, make=partial(_reference, "row"))
SEEDS_SCHEMA = schema_of(Seeds, shorthand_key="max_per_candidate", optional=True, make=dict)
STOP_SCHEMA = schema_of(StopSpec, shorthand_key="gain", optional=True)
TEACHER_SCHEMA = schema_of(TeacherSpec, shorthand_key="folder", optional=True,
                           check=_teacher_conflicts)
WARM_START_SCHEMA = schema_of(WarmStartSpec, shorthand_key="from", optional=True)
