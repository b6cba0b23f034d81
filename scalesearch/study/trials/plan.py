"""Plan of a driver."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scalesearch.pareto.objective import Objective
from scalesearch.schedule.rungs import NO_RUNGS, Rungs
from scalesearch.study.config.fixed_architectures import FixedArchitecture
from scalesearch.study.config.sections import SINGLE_SEED, Seeds, StopSpec
from scalesearch.study.trials.evaluator import Evaluator
from scalesearch.study.trials.record import JobFile
from scalesearch.study.trials.trial import Params


@dataclass(frozen=True)
class StudyPlan:
    """Plan of a driver.

    Attributes:
        trials: candidates to train; references come on top. With rungs, as much compute as so many
            full trainings
            take, spent on more candidates.
        job_template: what every ``job.json`` says.
        record_fields: what every record says (:attr:`StudyMeta.shared`).
        attempts: how often a trial whose worker dies is started at most.
        max_proposals: proposals in a row that bring nothing new, after which the study ends.
        rungs: where trials pause.
        seeds: what may be spent on replicates of the front, once the search is over.
        compute: CPU-seconds that its trials may take in all; None: no limit but ``trials``.
        stop: when the search ends before that.
        enqueued: params that are proposed before the sampler is asked.
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
