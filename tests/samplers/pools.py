"""A small real space under a budget, and a study of it in which training is a formula."""

import math
from dataclasses import replace

from scalesearch.cost import find_protocol
from scalesearch.samplers import make_proposer
from scalesearch.samplers.base import Settings
from scalesearch.samplers.feasible_region import Region
from scalesearch.samplers.history import COMPLETE, INFEASIBLE, PENDING, Goal, Seen
from scalesearch.schedule.rungs import Rungs
from scalesearch.schedule.scheduler import Strategy
from scalesearch.space import Space
from scalesearch.study.trials.evaluator import Bill

GOALS = (Goal("bleu", "max", True), Goal("params.total", "min", False))
SPACE = Space.parse("""
space: tiny
width: 16 | 32 | 64
norm: pre | post
encoder:
  depth: 1 | 2
  heads: 2 | 4
  ffn: { relu: { hidden: = 2 * width } }
decoder:
  depth: 1
  heads: = encoder.heads
  ffn: { relu: { hidden: = 2 * width } }
share:
  encoder.attention: own | cycle(1..2)
cost:
  protocol: { source: 10, target: 10, vocab: 100 }
  budgets:
    tiny: params.total <= 60k and macs.total <= 1M
""")


class Searched:
    """A search of ``space`` from an empty history or from ``history``."""

    def __init__(self, kind, seed=1, history=(), rungs=None, space=SPACE):
        self.bill = Bill(space, find_protocol("forward", 10, 10, 100), tuple(space.budgets.values()))
        proposer = make_proposer(space, self.bill.names, GOALS, Settings(kind, seed, 4, 6), Region(self.bill))
        self.strategy = Strategy(proposer, self.judge, rungs or Rungs(), GOALS, asks=300)
        self.history = list(history)

    def judge(self, number, params):
        candidate = self.bill.judge(params)
        network = candidate.architecture.id if candidate.architecture else f"none {number}"
        costs = {"params.total": float(candidate.cost["params.total"])} if candidate.cost else {}
        state = PENDING if candidate.feasible else INFEASIBLE
        return Seen(number, state, dict(params), network, candidate.slacks, costs)

    def start(self):
        """Begins one more candidate; None where there is none."""
        chosen = self.strategy.next(self.history, 1000.0)
        if chosen is not None:
            self.history += [*chosen.rejected, *([chosen.seen] if chosen.seen else [])]
        return chosen and chosen.seen

    def end(self, seen):
        """Trains a candidate."""
        bleu = 30 * (1 - math.exp(-seen.costs["params.total"] / 30_000)) + 2 * (seen.params["norm"] == "pre")
        values = {"bleu": bleu, "params.total": seen.costs["params.total"]}
        self.history[seen.number] = replace(seen, state=COMPLETE, rungs=(math.exp(-bleu),), values=values)

    def run(self, count):
        """Begins and trains up to ``count`` candidates, one after the other."""
        for _ in range(count):
            seen = self.start()
            if seen is None:
                break
            self.end(seen)
        return self


def feasible_networks(space=SPACE):
    """Every network that the budget allows."""
    all_of_it = Searched("random", space=space)
    judged = (all_of_it.judge(0, answers.params) for answers in space.enumerate())
    return {seen.identity for seen in judged if seen.state == PENDING}
