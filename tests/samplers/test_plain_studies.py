"""The samplers in plain Optuna studies: conditions, constraints, objectives, storages."""

import math
import random
import time
from functools import partial

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from scalesearch.pareto.front import hypervolume
from scalesearch.samplers.candidate import candidate_key, enumerate_candidates, sample_candidate
from scalesearch.samplers.candidate_facts import CandidateFacts, FactsCache
from scalesearch.samplers.candidate_sampler import (
    CandidateSampler,
    GridSampler,
    RandomSampler,
    SpaceExhaustedError,
)
from scalesearch.samplers.feasible_region import FeasibleRegion
from scalesearch.samplers.front_neighbors import FrontNeighbors
from scalesearch.samplers.hypervolume_gp import HypervolumeGP
from scalesearch.samplers.optuna_adapter import OptunaSamplerAdapter
from scalesearch.samplers.trial_history import PAUSED, RUNGS
from tests.errors import refuses

SAMPLERS = [HypervolumeGP, FrontNeighbors, RandomSampler]
WAYS = ["maximize", "minimize"]


def define(trial):
    """Width and depth, and a gate if the type is gated."""
    trial.suggest_int("width", 8, 256, log=True)
    trial.suggest_int("depth", 1, 6)
    if trial.suggest_categorical("kind", ["plain", "gated"]) == "gated":
        trial.suggest_float("gate", 0.1, 2.0)
    return trial.params


def cost(params):
    return params["width"] ** 2 * params["depth"] / 1000


def known(params):
    return CandidateFacts((None, cost(params)), {"budget": cost(params) - 100})


def score(params):
    return math.log(params["width"] * params["depth"]) - (params.get("gate", 1.0) - 0.7) ** 2


def objective(trial):
    params = define(trial)
    return score(params), cost(params)


def tpe(**arguments):
    return OptunaSamplerAdapter(
        lambda seed: optuna.samplers.TPESampler(seed=seed, n_startup_trials=4),
        learns_from_infeasible=True, **arguments)


def nsga2(**arguments):
    return OptunaSamplerAdapter(
        lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=4), **arguments)


@pytest.mark.parametrize("facts", [
    CandidateFacts((1.0,)), {"cost": 1.0}, (None, 1.0), CandidateFacts(1.0),
    CandidateFacts((None, 1.0), 1.0)], ids=["length", "dict", "tuple", "number", "constraint"])
def test_invalid_facts_are_rejected(facts):
    with refuses("bad-argument", place="facts: expected "):
        run(HypervolumeGP(define=define, facts=lambda params: facts, seed=1), 3)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_facts_that_are_not_finite_name_the_objective_and_the_parameters(value):
    def facts(params):
        return CandidateFacts((None, value if params["depth"] == 6 else cost(params)))

    study = optuna.create_study(directions=WAYS,
                                sampler=RandomSampler(define=define, facts=facts, seed=1))
    study.enqueue_trial({"width": 8, "depth": 6, "kind": "plain"})
    with refuses("bad-argument", "'width': 8, 'depth': 6",
                 place="facts: objective 1: "):
        study.optimize(objective, n_trials=2)


def test_values_of_a_batch_are_finite():
    candidate = sample_candidate(define, random.Random(0))
    with refuses("bad-argument", place="facts: "):
        FactsCache(None).store(candidate, CandidateFacts((None, math.nan)))


def run(sampler, count, storage=None, name="s"):
    study = optuna.create_study(storage=storage, study_name=name, directions=WAYS, sampler=sampler,
                                load_if_exists=True)
    study.optimize(objective, n_trials=count)
    return study


def volume(study):
    """Hypervolume of the trials within the budget."""
    values = [trial.values for trial in study.trials if trial.values[1] <= 100]
    return hypervolume(values, [2.0, 100.0], ["max", "min"])


@pytest.mark.parametrize("sampler", [*SAMPLERS, tpe])
@pytest.mark.parametrize("arguments", [{}, {"define": define}, {"define": define, "facts": known}])
def test_conditional_parameters_are_complete_and_reproducible(sampler, arguments):
    first, same, other = (run(sampler(seed=seed, **arguments), 14).trials for seed in (1, 1, 2))
    assert [trial.params for trial in first] == [trial.params for trial in same] != [
        trial.params for trial in other]
    assert all(("gate" in trial.params) == (trial.params["kind"] == "gated") for trial in first)
    assert len({candidate_key(trial.params) for trial in first}) > 10


@pytest.mark.full
@pytest.mark.parametrize("sampler", [*SAMPLERS, tpe])
def test_reopened_study_continues_as_if_uninterrupted(sampler, tmp_path):
    storage = f"sqlite:///{tmp_path / 'one.db'}"
    run(sampler(define=define, facts=known, seed=3), 7, storage)
    halves = run(sampler(define=define, facts=known, seed=3), 5, storage)
    whole = run(sampler(define=define, facts=known, seed=3), 12)
    assert [trial.params for trial in halves.trials] == [trial.params for trial in whole.trials]


def test_known_costs_improve_the_search():
    """Compared with random trials, by hypervolume within the budget."""
    learned = [volume(run(HypervolumeGP(define=define, facts=known, seed=seed), 25))
               for seed in range(3)]
    sampled = [volume(run(RandomSampler(define=define, seed=seed), 25)) for seed in range(3)]
    assert min(learned) > max(sampled)


def test_known_constraints_are_met_by_every_proposal():
    region = FeasibleRegion(define, known)
    for sampler in (*SAMPLERS, nsga2):
        study = run(sampler(define=define, facts=known, region=region, seed=1), 16)
        assert all(trial.values[1] <= 100 for trial in study.trials)


def test_measured_constraint_is_learned():
    def trial_of(trial):
        params = define(trial)
        trial.set_constraint("memory", params["depth"] - 2.5)
        return score(params), cost(params)

    def share(sampler):
        study = optuna.create_study(directions=WAYS, sampler=sampler)
        study.optimize(trial_of, n_trials=30)
        return sum(trial.params["depth"] <= 2 for trial in study.trials[8:]) / 22

    assert share(HypervolumeGP(define=define,
                               facts=lambda params: CandidateFacts((None, cost(params))),
                               seed=1)) > 0.7
    assert share(RandomSampler(define=define, seed=1)) < 0.6


def test_wrapped_sampler_reads_predictions_of_paused_trials():
    sampler = tpe(define=define, facts=known, seed=1)
    study = optuna.create_study(directions=WAYS, sampler=sampler)
    for number in range(8):
        trial = study.ask()
        values = objective(trial)
        trial.set_user_attr(RUNGS, [math.exp(-values[0])])
        if number < 5:
            study.tell(trial, values)
        else:
            trial.set_user_attr(PAUSED, number < 7)  # the last is in training
    failed = study.ask()
    objective(failed)
    study.tell(failed, state=TrialState.FAIL)
    objective(study.ask())
    shown = [trial
             for trial in sampler._study.get_trials(deepcopy=False)
             if trial.state != TrialState.FAIL]
    assert [trial.state.name for trial in shown[:9]] == ["COMPLETE"] * 7 + ["RUNNING", "PRUNED"]
    for paused in study.trials[5:7]:
        bleu, size = shown[paused.number].values
        # the loss determines the score
        assert bleu == pytest.approx(score(paused.params)) and size == cost(paused.params)


def test_parameters_outside_the_region_may_be_sampled():
    """As if another sampler fixes parameters, or trials suggest other ones."""
    sampler = RandomSampler(define=define, facts=known, region=FeasibleRegion(define, known),
                            seed=1)
    study = run(optuna.samplers.PartialFixedSampler({"depth": 2}, sampler), 4)
    assert {trial.params["depth"] for trial in study.trials} == {2}
    space = {"x": optuna.distributions.FloatDistribution(0, 1)}
    assert 0 <= sampler.sample_relative(study, study.ask()._cached_frozen_trial, space)["x"] <= 1


def test_infinite_and_equal_values_are_accepted():
    study = optuna.create_study(directions=["minimize", "minimize"],
                                sampler=HypervolumeGP(define=define, seed=1))
    study.optimize(lambda trial: (math.inf if define(trial)["depth"] > 4 else 1.0, 2.0),
                   n_trials=14)
    assert len(study.trials) == 14


def test_proposal_of_another_type_is_rejected():
    class Wrong(CandidateSampler):
        def propose(self, state):
            return {"width": 32}

    with refuses("bad-proposal", "Wrong", "{'width': 32}", key="sampler"):
        run(Wrong(define=define, seed=1), 1)


def test_repeated_proposals_are_replaced():
    class Stubborn(CandidateSampler):
        def propose(self, state):
            return self.sample_random(state, random.Random(0))

    study = run(Stubborn(define=define, seed=1), 9)
    assert len({candidate_key(trial.params) for trial in study.trials}) == 9


@st.composite
def small_spaces(draw):
    """A define-by-run function of a conditional space, and its number of candidates."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    branches = draw(st.integers(1, 3))
    size = draw(st.integers(1, 3)) if branches > 1 else 0

    def define_small(trial):
        for index, count in enumerate(sizes):
            trial.suggest_int(f"size {index}", 1, count)
        if trial.suggest_categorical("branch", list("abc"[:branches])) == "b":
            trial.suggest_float("inner", 0.5, 0.5 * size, step=0.5)

    return define_small, math.prod(sizes) * (branches - 1 + size if size else branches)


@given(small_spaces(), st.integers(0, 99))
@settings(max_examples=6, deadline=None)
@pytest.mark.parametrize("sampler", [*SAMPLERS, tpe, nsga2, GridSampler])
def test_candidates_of_a_small_space_are_proposed_once_before_any_is_repeated(sampler, space, seed):
    define_small, count = space
    study = optuna.create_study(sampler=sampler(define=define_small, seed=seed))
    study.optimize(lambda trial: define_small(trial) or len(trial.params), n_trials=count)
    assert len({candidate_key(trial.params) for trial in study.trials}) == count
    if sampler is GridSampler:
        if count == 1:  # Optuna does not ask samplers for single values
            return
        with pytest.raises(SpaceExhaustedError):
            define_small(study.ask())
    else:
        study.optimize(lambda trial: define_small(trial) or len(trial.params), n_trials=2)
        assert len({candidate_key(trial.params) for trial in study.trials}) == count


@pytest.mark.parametrize("sampler", [*SAMPLERS, tpe, nsga2])
def test_samplers_without_a_space_repeat_nothing_while_a_candidate_is_new(sampler):
    study = optuna.create_study(sampler=sampler(seed=5))
    study.optimize(lambda trial: trial.suggest_int("width", 1, 3)
                   + trial.suggest_categorical("depth", [1, 2]), n_trials=6)
    assert len({candidate_key(trial.params) for trial in study.trials}) == 6



def small_objective(trial):
    return trial.suggest_int("width", 1, 4) * trial.suggest_int("depth", 1, 3)


@pytest.mark.parametrize("sampler", [
    *(partial(sampler, **arguments) for sampler in (*SAMPLERS, tpe, nsga2)
      for arguments in ({}, {"define": small_objective})), partial(GridSampler, small_objective)])
def test_open_trials_differ_while_their_parameters_are_suggested(sampler):
    study = optuna.create_study(sampler=sampler(seed=1))
    study.optimize(small_objective, n_trials=6)
    trials = [study.ask() for _ in range(6)]
    for trial in trials:
        trial.suggest_int("width", 1, 4)
    for trial in trials:
        trial.suggest_int("depth", 1, 3)
    assert len({candidate_key(trial.params) for trial in study.trials}) == 12


def test_threads_propose_different_candidates():
    class Slow(CandidateSampler):
        def propose(self, state):
            time.sleep(0.05)
            return next(filter(state.is_new, enumerate_candidates(state.define)))

    study = optuna.create_study(sampler=Slow(define=small_objective, seed=1))
    study.optimize(small_objective, n_trials=12, n_jobs=4)
    assert len({candidate_key(trial.params) for trial in study.trials}) == 12
