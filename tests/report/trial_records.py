"""Synthetic records of a study."""

import math
import random
from dataclasses import replace

from scalesearch.pareto.noise import CONFIDENCE
from scalesearch.report.table import trials_frame
from scalesearch.studies.config.objectives import parse_objective
from scalesearch.studies.replicates.summary import StudyView
from scalesearch.studies.trials.trial import EventType, Origin, State, Trial, TrialEvent
from scalesearch.studies.trials.trials import Trials
from tests.studies.fakes import META

OBJECTIVES = {"bleu": "max", "params.total": "min", "macs.total": "min"}
PROTOCOL = {"name": "forward", "source": 20, "target": 18, "vocab": 1000}


def record(number, bleu, params, macs, state="complete", label=None, in_space=True, feasible=True,
           **config):
    """Record of a trial."""
    return {"trial": number, "state": state, "label": label, "is_in_space": in_space,
            "is_feasible": feasible, "reason": "", "architecture": f"id{number}",
            "config": {"width": 8 * number, "norm": "pre", **config},
            "metrics": {} if bleu is None else {"bleu": bleu, "chrf": bleu + 10, "loss": 3.0},
            "costs": {"params.total": params, "params.non_embedding": params // 2,
                      "macs.total": macs}, "seconds": 12.0, "seed": 1}


def records(count=24, seed=1, widest=6.5):
    """Records with 10^5.5 to 10^widest params; those over two million are infeasible."""
    rng = random.Random(seed)
    trials = []
    for number in range(count):
        params = int(10 ** rng.uniform(5.5, widest))
        is_infeasible = params > 2_000_000
        bleu = None if is_infeasible else 38 * (1 - math.exp(-params / 4e5)) + rng.gauss(0, 2)
        state = "infeasible" if is_infeasible else "complete"
        trials.append(record(number, bleu, params, params * 25, state, feasible=not is_infeasible))
    return trials


def replicate(first, number, bleu, state="complete"):
    """Record of a further seed of a trial."""
    costs = first["costs"]
    trial = record(number, bleu, costs["params.total"], costs["macs.total"], state)
    return trial | {"origin": "replicate", "original": first["trial"], "seed": number,
                   "architecture": first["architecture"]}


def trials_table(records, objectives=None, confidence=CONFIDENCE):
    """Table of the records of a study, with the front of its :class:`StudyView`."""
    objectives = objectives or OBJECTIVES
    trials = Trials()
    for fields in records:
        values = {name: fields["metrics"].get(name, fields["costs"].get(name))
                  for name in objectives}
        trial = Trial(fields["trial"], State(fields["state"]),
                      Origin(fields.get("origin", "sampler")), is_in_space=fields["is_in_space"],
                      architecture=fields["architecture"], costs=fields["costs"], values=values,
                      original=fields.get("original"),
                      constraints={} if fields["is_feasible"] else {"budget": 1.0})
        trials.apply(TrialEvent(EventType.PROPOSED, trial.number, proposed_trial=trial))
    meta = replace(META, objectives=tuple(parse_objective(*item) for item in objectives.items()))
    front = {member.number for member in StudyView(trials, meta).members}
    return trials_frame(records, objectives, front, confidence)
