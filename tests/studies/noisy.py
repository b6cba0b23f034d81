"""Fake training whose score depends on the seed, and studies of it with further seeds."""

import json
import random
import sys
from pathlib import Path

from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.executors.worker import finish_job
from scalesearch.studies.replicates.allocation import ReplicatedTrial, next_replicate
from scalesearch.studies.trials.trial import State, Trial
from tests.studies.fakes import OBJECTIVES, make_driver, make_plan, score
from tests.studies.slow_work import wait_for_leave

SEEDS = Seeds(3, 8, 0.9)


def luck(identity, seed, sd):
    """The noise of one training run, reproducible by identity and seed."""
    return sd * random.Random(f"{identity} {seed}").gauss(0, 1)


def noisy_result(folder, job, sd=1.0):
    """The result that training with the job's seed would write."""
    config = json.loads((folder / "architecture.yaml").read_text())
    with (folder / "trained").open("a") as file:
        file.write("x\n")
    bleu = score(config) + luck(folder.name.partition("-")[2], job.get("seed", 1), sd)
    metrics = {"bleu": bleu, "chrf": bleu + 10, "bleu_signature": "sig|v:1",
               "test": {"bleu": bleu - 1}}
    return {"state": "complete", "metrics": metrics, "seed": job.get("seed", 1), "seconds": 0.01}


def held_result(folder, job):
    """The result of training that waits for leave."""
    result = noisy_result(folder, job)
    wait_for_leave(folder.parent.parent)
    return result


def noisy_work(folder):
    """Finish a job without training."""
    finish_job(Path(folder), noisy_result)


def seeded_plan(trials=6, seeds=SEEDS, **changes):
    """The plan of a study that continues with further seeds."""
    return make_plan(trials, seeds=seeds, **changes)


def replicated(number, costs, *scores, pending=0, failed=0):
    """A candidate with ``scores`` per complete seed, and pending or failed seeds."""
    complete = [(State.COMPLETE, {**costs, **values}) for values in scores]
    others = [(State.PENDING, None)] * pending + [(State.FAILED, None)] * failed
    first, *further = (Trial(number, state, costs=costs, values=values)
                       for state, values in (*complete, *others))
    return ReplicatedTrial(first, tuple(further))


def with_another_seed(candidate, bleu):
    """The candidate with one more seed."""
    first = candidate.first
    replicate = first.replace(values={**first.costs, "bleu": bleu})
    return ReplicatedTrial(first, (*candidate.replicates, replicate))


def sampled(truth, sd, rng, count=1):
    """Candidates in order of cost, with ``count`` scores around the true one of each."""
    return [replicated(number, {"params.total": float(number)},
                       *({"bleu": rng.gauss(mean, sd)} for _ in range(count)))
            for number, mean in enumerate(truth)]


def confirmed(candidates, truth, sd, rng, seeds, objectives=OBJECTIVES):
    """The candidates after all requested seeds are trained, and the requests in order."""
    candidates = list(candidates)
    requests = []
    while (chosen := next_replicate(candidates, objectives, seeds)) is not None:
        requests.append(chosen)
        candidates[chosen.number] = with_another_seed(candidates[chosen.number],
                                                      rng.gauss(truth[chosen.number], sd))
    return candidates, requests


if __name__ == "__main__":  # a driver in a process of its own, to be killed
    driver = make_driver(sys.argv[1], seeded_plan(),
                         lambda folder: finish_job(Path(folder), held_result))
    print(driver.run(), flush=True)
