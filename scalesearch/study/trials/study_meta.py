"""Meta data of a study: ``study.json``, with which a resumed study must agree."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import msgspec

from scalesearch.errors import UserError
from scalesearch.pareto.objective import Objective
from scalesearch.samplers import SamplerSpec
from scalesearch.schedule.rungs import NO_RUNGS, Rungs
from scalesearch.study.config.objectives import parse_objective
from scalesearch.study.config.sections import SINGLE_SEED, Seeds, WarmStartSpec
from scalesearch.study.trials.trial import Numbers, Params
from scalesearch.tasks import EFFICIENCY_METRICS, TASKS

STUDY_FORMAT = 4  # of the study's folder; studies of other formats are refused


@dataclass(frozen=True)
class DataFacts:
    """Text that a study trains on; ``spec`` is what the data file says of it.

    Where candidates have vocabularies of their own, ``hash`` is of the text, and ``corpora`` has
    that of each corpus.
    """

    name: str
    hash: str
    synthetic: bool = False
    spec: Params = field(default_factory=dict)
    vocab: int | None = None
    corpora: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TeacherMeta:
    """Teacher of a study: its architecture's id, how it translates, and how it is trained where it is not yet."""

    architecture: str
    beam: int = 5
    length_penalty: float = 1.0
    mix: bool = False
    recipe: Params | None = None
    seed: int | None = None
    top_k: int = 0


@dataclass(frozen=True)
class StudyMeta:
    """Meta data of a study: what it searches, how it trains, by which versions.

    Attributes:
        id: made at random when the study began.
        created: UTC time, to the millisecond.
        space_hash: hash of the search space. protocol: of the costs. limits: constraints in words.
        bounds: cost to the number that a budget allows, for plots.
        recipe: of every training, but for its ``recipe_space`` (key to what it may be), which have
            their defaults in it.
        total_trials: full trainings of the search and references together.
        sampler: None where nothing is proposed. processes: that share a candidate's updates; None
            where not known.
        stopped_at_gain: the gain below which its search ended by itself; None where it has not.
        type: ``search``, or that of a study of rows; with ``architectures`` (labels), ``base``,
            ``scaling``, ``excluded``.
    """

    id: str
    name: str
    created: str
    space_hash: str
    protocol: Params
    objectives: tuple[Objective, ...]
    recipe: Params
    seed: int
    data: DataFacts
    synthetic: bool
    total_trials: int
    limits: tuple[str, ...]
    bounds: Numbers
    versions: Mapping[str, str]
    teacher: TeacherMeta | None = None
    sampler: SamplerSpec | None = None
    type: str = "search"
    architectures: tuple[str, ...] | None = None
    base: str | None = None
    scaling: Params | None = None
    excluded: Mapping[str, str] = field(default_factory=dict)
    rungs: Rungs = NO_RUNGS
    compute: float | None = None
    seeds: Seeds = SINGLE_SEED
    warm_start: WarmStartSpec | None = None
    recipe_space: Mapping[str, str] = field(default_factory=dict)
    processes: int | None = None
    forked_from: Mapping[str, str | int] | None = None
    stopped_at_gain: float | None = None

    @cached_property
    def directions(self) -> dict[str, str]:
        """Objective to ``min`` or ``max``."""
        return {one.name: one.direction for one in self.objectives}

    @property
    def task(self) -> str:
        """Name of the models' task."""
        return str(self.data.spec.get("task", "translation"))

    @property
    def main_objective(self) -> str:
        """The objective that orders trials: the main metric, else the first that is measured, else the first."""
        known = self.main_metric
        measured = [one.name for one in self.objectives if one.is_measured] or [
            one.name for one in self.objectives]
        return known if known in self.directions else measured[0]

    @property
    def main_metric(self) -> str:
        """The task's main metric, unless the objectives have others alone: then the first of these."""
        metrics = [one.name
                   for one in self.objectives
                   if "." not in one.name and one.name not in EFFICIENCY_METRICS]
        main = TASKS[self.task].main_metric
        return main if main in metrics or not metrics else metrics[0]

    @property
    def record_fields(self) -> dict[str, object]:
        """Facts of the study that every record holds."""
        return {"study": self.name, "space_hash": self.space_hash, "protocol": self.protocol,
                "objectives": self.directions, "recipe": self.recipe, "study_seed": self.seed,
                "data": asdict(self.data), "teacher": self.teacher and asdict(self.teacher)}

    def to_json(self) -> dict[str, object]:
        """JSON of all fields."""
        values = {one.name: msgspec.to_builtins(getattr(self, one.name)) for one in fields(self)}
        data = {"format": STUDY_FORMAT, **values, "objectives": self.directions,
                "rungs": values["rungs"] if self.rungs.n_pauses else None,
                "seeds": values["seeds"] if self.seeds.is_enabled else None}
        return {**data, "crc": _checksum(data)}

    def round_trip(self) -> StudyMeta:
        """Copy of itself as a file gives it back. It compares with one that was read."""
        return StudyMeta.from_json(msgspec.json.encode(self.to_json()))

    @classmethod
    def from_json(cls, text: bytes) -> StudyMeta:
        """Reads what :meth:`to_json` wrote.

        Raises:
            UserError: it is of another format, or damaged.
        """
        try:
            data = msgspec.json.decode(text, type=dict)
            if data.get("format") == STUDY_FORMAT:
                if data.pop("crc", None) != _checksum(data):
                    raise ValueError("its checksum is wrong")
                ways = msgspec.convert(data["objectives"], dict[str, str])
                given = {"rungs": NO_RUNGS, "seeds": SINGLE_SEED,
                         **{key: data[key] for key in ("rungs", "seeds") if data[key]}}
                objectives = tuple(parse_objective(*one) for one in ways.items())
                return msgspec.convert({**data, "objectives": objectives, **given}, cls,
                                       from_attributes=True)
        except (ValueError, KeyError, RecursionError) as error:
            raise UserError(f"study.json is no study's ({error}); the file was changed, or the "
                            "disk damaged it", code="not-a-study") from None
        made_by = data.get("versions")
        version = made_by.get("scalesearch", "unknown") if isinstance(made_by, dict) else "unknown"
        raise UserError(f"it is a study of format {data.get('format')}, made by another version of "
                        f"scalesearch; this one reads format {STUDY_FORMAT} only. Read it with the "
                        f"version that made it ({version}), or start it anew with --out",
                        code="other-format")


def _checksum(data: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(data, sort_keys=True).encode()):08x}"
