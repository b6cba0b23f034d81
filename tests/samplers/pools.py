"""A small real space under a budget, and a study of it in which training is a formula."""

import math
from functools import partial

import optuna

from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.errors import UserError
from scalesearch.pareto import Objective
from scalesearch.samplers import SamplerSpec, make_sampler
from scalesearch.samplers.candidate_facts import CandidateFacts
from scalesearch.samplers.candidate_sampler import SpaceExhaustedError
from scalesearch.samplers.encoding import decode_params, suggest_params
from scalesearch.samplers.feasible_region import FeasibleRegion
from scalesearch.samplers.space_samplers import ExactFeasibleSampler
from scalesearch.samplers.trial_history import ARCHITECTURE, COSTS, RUNGS, is_infeasible
from scalesearch.spaces import Space
from scalesearch.spaces.schema.cost_names import COST_NAMES

OBJECTIVES = (Objective("bleu", "max", True), Objective("params.total", "min", False))
FORWARD = find_protocol("forward", 10, 10, 100)
ASKS = 60  # consecutive repeated proposals after which a space counts as exhausted
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
optuna.logging.set_verbosity(optuna.logging.WARNING)


def known_of(space, limits):
    """The facts of a candidate of ``space``, by its costs."""
    def known(params):
        try:
            network = space.architecture(decode_params(space, params))
        except UserError:
            return CandidateFacts((None, None), {}, is_buildable=False)
        costs = evaluate_cost(network.block, FORWARD)

        def lookup(name):
            return costs[name] if name in COST_NAMES else network.config[name]

        constraints = {limit.text: limit.violation(lookup) for limit in limits}
        return CandidateFacts((None, float(costs["params.total"])), constraints, network.id)

    return known


def region_of(space, limits):
    return FeasibleRegion(partial(suggest_params, space), known_of(space, limits),
                          partial(ExactFeasibleSampler.of, space, FORWARD, limits))


def study_of(trials=(), sampler=None):
    """An Optuna study of :data:`OBJECTIVES` that holds ``trials``."""
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    study.add_trials(trials)
    return study


class Searched:
    """A search of ``space`` that starts from ``trials``, as by a driver."""

    def __init__(self, name, seed=1, trials=(), space=SPACE, shares=(1.0,), **arguments):
        startup = {"population_size": 6} if name == "nsga2" else {} if name in (
            "random", "grid") else {"n_startup_trials": 4}
        self.region = region_of(space, tuple(space.budgets.values()))
        self.known = self.region.facts
        self.define = partial(suggest_params, space)
        sampler = make_sampler(SamplerSpec(name, startup | arguments, seed), self.define,
                               self.known, self.region, OBJECTIVES, shares)
        self.study = study_of(trials, sampler)

    @property
    def trials(self):
        return self.study.get_trials(deepcopy=False)

    @property
    def started(self):
        """The trials that were new and feasible."""
        return [trial
                for trial in self.trials
                if trial.state.name in ("COMPLETE", "RUNNING") and trial.params]

    def start(self):
        """Start one more trial; None if the space is exhausted."""
        for _ in range(ASKS):
            trial = self.study.ask()
            try:
                self.define(trial)
            except SpaceExhaustedError:
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
                return None
            facts = self.known(trial.params)
            started = {trial.user_attrs.get(ARCHITECTURE)
                       for trial in self.trials if not is_infeasible(trial)}
            for name, value in facts.constraints.items():
                trial.set_constraint(name, value)
            trial.set_user_attr(ARCHITECTURE, facts.identity)
            trial.set_user_attr(COSTS, {"params.total": facts.values[1]})
            if facts.is_feasible and facts.identity not in started:
                return trial
            state = "FAIL" if facts.is_feasible else "PRUNED"
            self.study.tell(trial, state=optuna.trial.TrialState[state])
        return None

    def end(self, trial):
        """Train a trial."""
        size = trial.user_attrs[COSTS]["params.total"]
        bleu = 30 * (1 - math.exp(-size / 30_000)) + 2 * (trial.params["norm"] == "pre")
        trial.set_user_attr(RUNGS, [math.exp(-bleu)])
        self.study.tell(trial, [bleu, size])

    def run(self, count):
        """Start and train up to ``count`` trials in sequence."""
        for _ in range(count):
            trial = self.start()
            if trial is None:
                break
            self.end(trial)
        return self


def feasible_networks(space=SPACE):
    """Every network that the budget allows."""
    from scalesearch.samplers.candidate import enumerate_candidates

    facts_of = known_of(space, tuple(space.budgets.values()))
    facts = (facts_of(candidate.params)
             for candidate in enumerate_candidates(partial(suggest_params, space)))
    return {candidate.identity for candidate in facts if candidate.is_feasible}


def network(trial):
    return trial.user_attrs[ARCHITECTURE]
