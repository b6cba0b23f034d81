"""What a study file says, once read: see :mod:`scalesearch.study.config.reader`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalesearch.data import DataSpec
from scalesearch.schedule.rungs import FULL, Rungs
from scalesearch.space import Constraint, Space
from scalesearch.space.syntax.diagnostics import Place
from scalesearch.study.config.objectives import Objective
from scalesearch.study.config.replication import ONE, Seeds
from scalesearch.study.config.rows import Rows
from scalesearch.study.config.teacher import TeacherSpec
from scalesearch.study.config.warm_start import WarmSpec
from scalesearch.train.recipe import Recipe

CORPUS = "corpus"  # protocol.vocab: as many words as the corpus's vocabulary has


@dataclass(frozen=True)
class Resources:
    """What one worker gets, and where. ``gpus_per_trial`` may be a fraction.

    ``processes_per_trial`` above 1 share a candidate's updates; each of them gets as many CPUs, GPUs, threads and
    ``custom`` resources, by the names that a cluster's nodes state, as the other fields say. ``address`` is that of a
    running Ray cluster.
    """

    cpus_per_trial: float = 1.0
    gpus_per_trial: float = 0.0
    threads_per_trial: int = 1
    processes_per_trial: int = 1
    custom: dict[str, float] = field(default_factory=dict)
    address: str | None = None


@dataclass(frozen=True)
class ReferenceSpec:
    """An architecture to train first: a file's, or the answers ``set`` in a file or in the study's space."""

    name: str
    file: str | None = None
    set: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StudySpec:
    """A study file, read and checked as far as that goes without touching data, storage or workers."""

    name: str
    file: Path
    text: str
    space: Space
    data: DataSpec
    recipe: Recipe
    objectives: tuple[Objective, ...]
    out: Path
    protocol: dict[str, Any] = field(default_factory=dict)
    budget: Constraint | None = None
    proposer: str = "bayes"
    proposer_seed: int = 1
    startup: int | None = None
    population: int = 20
    seed: int = 1
    trials: int = 20
    workers: int = 1
    backend: str = "inprocess"
    resources: Resources = Resources()
    storage: str | None = None
    references: tuple[ReferenceSpec, ...] = ()
    teacher: TeacherSpec | None = None
    attempts: int = 3
    rungs: Rungs = FULL
    seeds: Seeds = ONE
    warm: WarmSpec | None = None
    proxies: bool = True
    places: dict[str, Place] = field(default_factory=dict)  # of the file's keys: where their values stand
    rows: Rows | None = None  # of a study that does not search

    @property
    def vocab(self) -> int | str:
        """The vocabulary that candidates are billed with: a size, or ``corpus`` where the file says none."""
        return self.protocol.get("vocab", CORPUS)
