"""Meta data of a study: ``study.json``, with which a resumed study must agree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from scalesearch.errors import UserError
from scalesearch.pareto.objective import Objective
from scalesearch.schedule.rungs import FULL, Rungs
from scalesearch.study.config.objectives import objective
from scalesearch.study.config.sections import ONE, Seeds
from scalesearch.tasks import MEASURED, TASKS

FORMAT = 2  # of the study's folder; studies of other formats are refused
Json = Mapping[str, Any]


@dataclass(frozen=True)
class StudyMeta:
    """Meta data of a study: what it searches, how it trains, by which versions.

    Attributes:
        id: made at random when the study began.
        created: UTC time, to the millisecond.
        space: hash of the search space. protocol: of the costs. limits: constraints in words.
        bounds: cost to the number that a budget allows, for plots.
        trials: full trainings of the search and references together.
        sampler: name, arguments and seed; None where nothing is proposed.
        kind: ``search``, or that of a study of rows; with ``rows`` (labels), ``base``, ``scaling``, ``left_out``.
    """

    id: str
    name: str
    created: str
    space: str
    protocol: Json
    objectives: tuple[Objective, ...]
    recipe: Json
    seed: int
    data: Json
    synthetic: bool
    trials: int
    limits: tuple[str, ...]
    bounds: Json
    versions: Json
    teacher: Json | None = None
    sampler: Json | None = None
    kind: str = "search"
    rows: tuple[str, ...] | None = None
    base: str | None = None
    scaling: Json | None = None
    left_out: Json = field(default_factory=dict)
    rungs: Rungs = FULL
    seeds: Seeds = ONE
    warm_start: Json | None = None
    forked_from: Json | None = None

    @cached_property
    def directions(self) -> dict[str, str]:
        """Objective to ``min`` or ``max``."""
        return {one.name: one.direction for one in self.objectives}

    @property
    def task(self) -> str:
        """Name of the models' task."""
        return str(self.data.get("spec", {}).get("task", "translation"))

    @property
    def main_objective(self) -> str:
        """The task's main metric, or else the first metric among the objectives."""
        metrics = [one.name for one in self.objectives if "." not in one.name and one.name not in MEASURED]
        main = TASKS[self.task].main
        return main if main in metrics or not metrics else metrics[0]

    @property
    def shared(self) -> dict[str, Any]:
        """Facts of the study that every record holds."""
        return {"study": self.name, "space": self.space, "protocol": self.protocol, "objectives": self.directions,
                "recipe": self.recipe, "study_seed": self.seed, "data": self.data, "teacher": self.teacher}

    def to_json(self) -> dict[str, Any]:
        """JSON of all fields."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {"format": FORMAT, **values, "objectives": self.directions,
                "rungs": asdict(self.rungs) if self.rungs.pauses else None,
                "seeds": asdict(self.seeds) if self.seeds.wanted else None}

    def as_read(self) -> StudyMeta:
        """Copy of itself as a file gives it back. It compares with one that was read."""
        return StudyMeta.from_json(json.loads(json.dumps(self.to_json())))

    @classmethod
    def from_json(cls, data: Json) -> StudyMeta:
        """Reads what :meth:`to_json` wrote.

        Raises:
            UserError: it is of another format.
        """
        if data.get("format") != FORMAT:
            raise UserError(f"it is a study of format {data.get('format')}, made by another version of scalesearch; "
                            f"this one reads format {FORMAT} only. Read it with the version that made it "
                            f"({data.get('versions', {}).get('scalesearch', 'unknown')}), or start it anew with --out",
                            code="other-format")
        known = {one.name: data[one.name] for one in fields(cls) if one.name in data}
        known |= {"objectives": tuple(objective(name, way) for name, way in data["objectives"].items()),
                  "limits": tuple(data["limits"]), "rows": None if data["rows"] is None else tuple(data["rows"]),
                  "rungs": Rungs(tuple(data["rungs"]["shares"]), data["rungs"]["eta"]) if data["rungs"] else FULL,
                  "seeds": Seeds(**data["seeds"]) if data["seeds"] else ONE}
        return cls(**known)
