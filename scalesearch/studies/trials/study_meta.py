"""Facts of a study in ``study.json``; a resumed study must agree with them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from scalesearch.errors import UserError, option
from scalesearch.pareto import Objective
from scalesearch.samplers import SamplerSpec
from scalesearch.schedule import NO_RUNGS, Rungs
from scalesearch.studies.config.fixed_architectures import ARCHITECTURE_NOUNS, COMPRESS
from scalesearch.studies.config.objectives import parse_objective
from scalesearch.studies.config.sections import SINGLE_SEED, Seeds, WarmStartSpec
from scalesearch.studies.trials.trial import Numbers, Origin, Params
from scalesearch.tasks import EFFICIENCY_METRICS, TASKS

STUDY_FORMAT = 4  # format of study folders; other formats are refused


@dataclass(frozen=True)
class DataFacts:
    """Training data of a study.

    Attributes:
        spec: content of the data file.
        hash: hash of the corpus; of the text, if candidates have their own vocabularies.
        corpora: hash of each corpus by vocabulary size, if candidates have their own vocabularies.
    """

    name: str
    hash: str
    synthetic: bool = False
    spec: Params = field(default_factory=dict)
    vocab: int | None = None
    corpora: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TeacherMeta:
    """Teacher of a study: architecture id, decoding, and recipe if it is trained."""

    architecture: str
    beam: int = 5
    length_penalty: float = 1.0
    mix: bool = False
    recipe: Params | None = None
    seed: int | None = None
    top_k: int = 0


@dataclass(frozen=True)
class StudyMeta:
    """Facts of a study: search space, recipe, data, versions.

    Attributes:
        id: random id.
        created: UTC time, to the millisecond.
        space_hash: hash of the search space.
        protocol: cost protocol.
        recipe: recipe of every run; keys in ``recipe_space`` have their defaults.
        recipe_space: searched keys of the recipe, with a description of their values.
        total_trials: full-budget runs of the search and of references.
        limits: constraints as text.
        bounds: upper bounds of costs, for plots.
        sampler: None in studies of fixed architectures.
        processes: number of processes per run; None if unknown.
        stopped_at_gain: gain below which the search ended by itself, or None.
        type: ``search`` or a type of fixed architectures, which have ``architectures`` (labels),
            ``base``, ``scaling`` and ``excluded``.
        compression: keys ``replace`` and ``fit`` of a compression.
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
    compression: dict[str, object] | None = None
    rungs: Rungs = NO_RUNGS
    compute: float | None = None
    seeds: Seeds = SINGLE_SEED
    warm_start: WarmStartSpec | None = None
    recipe_space: Mapping[str, str] = field(default_factory=dict)
    processes: int | None = None
    # Set in studies that earlier versions have forked from another study.
    forked_from: Mapping[str, str | int] | None = None
    stopped_at_gain: float | None = None

    @cached_property
    def directions(self) -> dict[str, str]:
        """``min`` or ``max`` by objective."""
        return {objective.name: objective.direction for objective in self.objectives}

    @property
    def task(self) -> str:
        """Name of the task."""
        return str(self.data.spec.get("task", "translation"))

    @property
    def architecture_noun(self) -> str:
        """Noun for a named architecture of the study, such as ``ablation row``."""
        return ARCHITECTURE_NOUNS[self.type]

    def pauses_at_rungs(self, origin: Origin) -> bool:
        """Whether trials of this origin pause at rungs; references only in a compression."""
        return origin.charged or (origin == Origin.REFERENCE and self.type == COMPRESS)

    @property
    def main_objective(self) -> Objective:
        """Objective by which trials and recipes are ranked.

        This is the main metric if it is an objective; otherwise the first measured objective, or
        the first objective.
        """
        main = [objective for objective in self.objectives if objective.name == self.main_metric]
        measured = [objective for objective in self.objectives if objective.is_measured]
        return (main or measured or self.objectives)[0]

    @property
    def main_metric(self) -> str:
        """Main metric of the task, or the first quality metric if it is not an objective."""
        metrics = [objective.name for objective in self.objectives
                   if "." not in objective.name and objective.name not in EFFICIENCY_METRICS]
        main = TASKS[self.task].main_metric
        return main if main in metrics or not metrics else metrics[0]

    @property
    def record_fields(self) -> dict[str, object]:
        """Facts of the study in every record."""
        return {"study": self.name, "space_hash": self.space_hash, "protocol": self.protocol,
                "objectives": self.directions, "recipe": self.recipe, "study_seed": self.seed,
                **msgspec.to_builtins({"data": self.data, "teacher": self.teacher})}

    def encode(self) -> dict[str, Any]:
        """Return the content of ``study.json``: the format, all fields, and a checksum."""
        data = {"format": STUDY_FORMAT, **msgspec.to_builtins(self), "objectives": self.directions}
        if not self.rungs.n_pauses:
            data["rungs"] = None
        if not self.seeds.is_enabled:
            data["seeds"] = None
        return {**data, "crc": _checksum(data)}

    @classmethod
    def decode(cls, text: bytes) -> StudyMeta:
        """Read the text of ``study.json``.

        Raises:
            UserError: it has another format, or is damaged.
        """
        try:
            data = msgspec.json.decode(text, type=dict)
            if data.get("format") == STUDY_FORMAT:
                if data.pop("crc", None) != _checksum(data):
                    raise ValueError("its checksum is wrong")
                directions = msgspec.convert(data["objectives"], dict[str, str])
                data |= {"objectives": tuple(parse_objective(*item) for item in directions.items()),
                         "rungs": data["rungs"] or NO_RUNGS, "seeds": data["seeds"] or SINGLE_SEED}
                return msgspec.convert(data, cls, from_attributes=True)
            version = (data.get("versions") or {}).get("scalesearch", "unknown")
        except (ValueError, KeyError, AttributeError, RecursionError) as error:
            raise UserError(f"study.json is corrupted: {error}", code="not-a-study") from None
        raise UserError(f"the study has format {data.get('format')}, but this version of "
                        f"scalesearch reads only format {STUDY_FORMAT}. Read it with the version "
                        f"that wrote it ({version}), or run it again with another "
                        f"{option('out')}",
                        code="other-format")


def _checksum(data: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(data, sort_keys=True).encode()):08x}"
