"""Plan of a driver."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scalesearch.pareto.objective import Objective
from scalesearch.schedule.rungs import NO_RUNGS, Rungs
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.sections import SINGLE_SEED, Seeds, StopSpec
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.record import JobFile
from scalesearch.studies.trials.trial import Params


@dataclass(frozen=True)
class StudyPlan:
    """Plan of a driver.

    Attributes:
        evaluator: evaluates costs and constraints of candidates.
        objectives: objectives of the study.
        trials: number of candidates to train, without references. With rungs, the compute of this
            number of full-budget runs is spent on more candidates.
        job_template: common fields of every ``job.json``.
        record_fields: common fields of every record, see :attr:`StudyMeta.record_fields`.
        references: architectures that are trained in any case.
        attempts: maximum number of starts of a trial whose worker dies.
        max_proposals: the study ends after this number of proposals without a new candidate.
        rungs: rungs at which trials pause.
        seeds: limits of replicates of the front, after the search.
        compute: limit of the CPU-seconds of all trials; None for no limit.
        stop: criterion to end the search earlier.
        enqueued: params that are proposed before those of the sampler.
    """

    evaluator: Evaluator
    objectives: tuple[Objective, ...]
    trials: int
    job_template: JobFile = field(default_factory=JobFile)
    record_fields: Mapping[str, Any] = field(default_factory=dict)
    references: tuple[FixedArchitecture, ...] = ()
    attempts: int = 3
    max_proposals: int = 1000
    rungs: Rungs = NO_RUNGS
    seeds: Seeds = SINGLE_SEED
    compute: float | None = None
    stop: StopSpec | None = None
    enqueued: tuple[Params, ...] = ()
