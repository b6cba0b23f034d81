"""What a driver works off."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scalesearch.schedule.rungs import FULL, Rungs
from scalesearch.space.assembly.architecture import Architecture
from scalesearch.study.config.objectives import Objective
from scalesearch.study.config.replication import ONE, Seeds
from scalesearch.study.trials.evaluator import Bill


@dataclass(frozen=True)
class Reference:
    """An architecture that the study file names: trained first, labelled in plots.

    ``params`` holds its answers where the space could have proposed it, else None.
    """

    label: str
    architecture: Architecture
    params: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Plan:
    """What a driver works off.

    Attributes:
        trials: candidates of the proposer to train; references come on top. With rungs, as much compute as so many
            full trainings take, spent on more candidates.
        job: what every ``job.json`` says.
        facts: what every record says.
        attempts: how often a candidate whose worker dies is started at most.
        asks: proposals in a row that bring nothing new, after which the study ends.
        rungs: where candidates pause.
        seeds: what may be spent on further seeds for the front, once the search is over.
        first: answers of what is proposed before the proposer is asked.
    """

    bill: Bill
    objectives: tuple[Objective, ...]
    trials: int
    job: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    references: tuple[Reference, ...] = ()
    attempts: int = 3
    asks: int = 1000
    rungs: Rungs = FULL
    seeds: Seeds = ONE
    first: tuple[Mapping[str, Any], ...] = ()
