"""Study files once read: see :mod:`scalesearch.study.config.reader`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalesearch.data import DataSpec
from scalesearch.schedule.rungs import Rungs
from scalesearch.space import Constraint, Space
from scalesearch.space.syntax.diagnostics import Place
from scalesearch.study.config.objectives import Objective
from scalesearch.study.config.replication import Seeds
from scalesearch.study.config.rows import Rows
from scalesearch.study.config.schema import CORPUS, ReferenceSpec, Resources
from scalesearch.study.config.teacher import TeacherSpec
from scalesearch.study.config.warm_start import WarmSpec
from scalesearch.train.recipe import Recipe


@dataclass(frozen=True)
class StudySpec:
    """Study file, read and checked. Data, storage and workers are not touched.

    Attributes:
        file, text: where it was read from.
        proposer, proposer_arguments, proposer_seed: who proposes, by the name and arguments of a sampler.
        rows: of a study that does not search.
        places: where the value of each key stands in the file, by dotted path.
    """

    name: str
    file: Path
    text: str
    out: Path
    space: Space
    data: DataSpec
    recipe: Recipe
    objectives: tuple[Objective, ...]
    protocol: Mapping[str, Any]
    budget: Constraint | None
    proposer: str
    proposer_arguments: Mapping[str, Any]
    proposer_seed: int
    seed: int
    trials: int
    workers: int
    backend: str
    resources: Resources
    storage: str | None
    references: tuple[ReferenceSpec, ...]
    teacher: TeacherSpec | None
    attempts: int
    rungs: Rungs
    seeds: Seeds
    warm: WarmSpec | None
    proxies: bool
    rows: Rows | None
    places: Mapping[str, Place]

    @property
    def vocab(self) -> int | str:
        """Vocabulary of the costs: a size, or ``corpus`` where the file gives none."""
        return self.protocol.get("vocab", CORPUS)
