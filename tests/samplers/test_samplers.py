"""Every sampler: no infeasible candidate, none twice, and reproducible by the seed."""

from collections import Counter
from importlib.metadata import EntryPoint
from importlib.util import find_spec

import numpy as np
import optuna
import pytest

from scalesearch.errors import UserError
from scalesearch.samplers import SAMPLER_NAMES, SamplerSpec, make_sampler
from scalesearch.samplers.candidate import candidate_key
from scalesearch.samplers.candidate_sampler import GridSampler, RandomSampler
from scalesearch.samplers.trial_history import ARCHITECTURE
from scalesearch.spaces import Space
from tests.errors import refuses
from tests.samplers.pools import OBJECTIVES, SPACE, Searched, feasible_networks, network

FEW = {"gp": 8}  # which takes seconds per proposal
GP_MARKS = [pytest.mark.slow,
            pytest.mark.skipif(find_spec("scipy") is None, reason="gp needs scipy")]
LEARNING = [name for name in SAMPLER_NAMES if name not in ("grid", "random")]


def names(*without):
    return [pytest.param(name, marks=GP_MARKS if name == "gp" else [])
            for name in SAMPLER_NAMES if name not in without]


def params_of(search):
    return [(trial.number, trial.state, trial.params) for trial in search.trials]


@pytest.mark.parametrize("name", names())
def test_started_candidates_are_feasible_and_distinct(name):
    search = Searched(name).run(FEW.get(name, 14))
    networks = Counter(map(network, search.started))
    assert len(networks) == FEW.get(name, 14) and set(networks.values()) == {1}
    assert set(networks) <= feasible_networks()
    assert all(search.known(trial.params).is_feasible for trial in search.started)


@pytest.mark.parametrize("name", names())
def test_pending_candidates_are_not_proposed_again(name):
    search = Searched(name).run(5)
    waiting = [search.start() for _ in range(3)]
    assert len(set(map(network, search.started))) == 8
    assert all(search.trials[trial.number].state.name == "RUNNING" for trial in waiting)


@pytest.mark.full
@pytest.mark.parametrize("name", names())
def test_proposals_depend_on_the_seed_only(name):
    first, same, other = (params_of(Searched(name, seed).run(FEW.get(name, 10)))
                          for seed in (3, 3, 4))
    assert first == same
    assert first != other or name == "grid"  # which has one order


@pytest.mark.full
@pytest.mark.parametrize("name", names())
def test_new_sampler_continues_as_the_old_one_would(name):
    count = FEW.get(name, 16)
    whole = Searched(name).run(count)
    half = Searched(name).run(count // 2)
    assert params_of(Searched(name, trials=half.trials).run(count - count // 2)) == params_of(whole)


@pytest.mark.parametrize("name", names())
def test_same_trial_number_gets_the_same_proposal(name):
    """As after a driver that stopped between a proposal and its entry in the log."""
    search = Searched(name).run(FEW.get(name, 8))
    first, again = (Searched(name, trials=search.trials).start() for _ in range(2))
    assert first.params == again.params and first.number == again.number


@pytest.mark.parametrize("name", names("gp"))
@pytest.mark.full
def test_search_ends_when_the_space_is_exhausted(name):
    space = SPACE.with_overrides({"share.encoder.attention": "own", "encoder.heads": "2"})
    search = Searched(name, space=space).run(1000)
    assert set(map(network, search.started)) == feasible_networks(space)
    assert search.start() is None


@pytest.mark.parametrize("name", names("gp", "grid"))
def test_conditional_continuous_parameter_is_searched(name):
    space = SPACE.with_overrides({"tensor_chain": "{ ffn: off | 0.05..0.5 log, length: 2 }"})
    search = Searched(name, space=space).run(12)
    assert len(set(map(network, search.started))) == 12


def test_grid_needs_a_finite_space():
    search = Searched(
        "grid", space=SPACE.with_overrides({"tensor_chain": "{ ffn: 0.05..0.5 log, length: 2 }"}))
    with refuses("continuous-range"):
        search.start()


def test_grid_proposes_each_candidate_once():
    def define(trial):
        if trial.suggest_categorical("kind", ["a", "b"]) == "b":
            trial.suggest_int("size", 1, 3)

    study = optuna.create_study(sampler=GridSampler(define=define))
    for _ in range(4):
        trial = study.ask()
        define(trial)
        study.tell(trial, 1.0)
    assert len({candidate_key(trial.params) for trial in study.trials}) == 4


@pytest.mark.parametrize("name", ["bayes", "local"])
def test_first_proposals_are_spread_over_the_costs(name):
    """The middle, a quarter, three quarters and an eighth of the feasible candidates."""
    space = Space.parse("space: wide\nwidth: 8..512 step 8\nencoder: { depth: 1, heads: 2 }\n"
                        "decoder: { depth: 1, heads: 2 }\n")
    widths = [[search.start().params["width"] for _ in range(4)]
              for search in (Searched(name, seed=seed, space=space) for seed in range(6))]
    assert np.mean(widths, 0) / 512 == pytest.approx([1 / 2, 1 / 4, 3 / 4, 1 / 8], abs=0.15)


@pytest.mark.parametrize("name", names("grid", "nsga2"))
def test_trials_from_outside_the_space_are_accepted(name):
    outside = [optuna.create_trial(values=[20.0 + number, 5e4 + number],
                                   user_attrs={ARCHITECTURE: f"far {number}"})
               for number in range(12)]
    search = Searched(name, trials=outside).run(4 if name == "gp" else 6)
    networks = {network(trial) for trial in search.started}
    assert len(networks &  feasible_networks()) == (4 if name == "gp" else 6)


@pytest.mark.parametrize("name", LEARNING)
def test_search_continues_next_to_paused_trials(name):
    """With every second trial paused, a search proposes only new candidates."""
    if name == "gp":
        pytest.skip("takes seconds per proposal; shown by the others through the same wrapper")
    search = Searched(name)
    for count in range(12):
        trial = search.start()
        if count % 2:
            trial.set_user_attr("rungs", [3.0 + count / 10])
            trial.set_user_attr("paused", True)
        else:
            search.end(trial)
    assert len(set(map(network, search.started))) == 12


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [("TPESamplr", {}, "did you mean `TPESampler`"), ("bays", {}, "did you mean `bayes`"),
     ("CmaEsSampler", {}, "resume"), ("GridSampler", {}, "use `grid`"),
     ("TPESampler", {"multivariat": True}, "did you mean `multivariate`"),
     ("tpe", {"n_startup_trials": "many"}, "n_startup_trials is int, not 'many'"),
     ("nsga2", {"population_size": 1}, "population_size"),
     ("bayes", {"n_startup": 3}, "did you mean `n_startup_trials`"),
     ("TPESampler", {"gamma": 3}, "gamma is Callable"),
     ("nsga2", {"crossover": "uniform"}, "crossover is BaseCrossover"),
     ("TPESampler", {"constant_liar": 1}, "constant_liar is bool"),
     ("TPESampler", {"seed": 3}, "unknown argument `seed`"),
     ("random", {"define": 3}, "unknown argument `define`")])
def test_unknown_sampler_or_argument_is_reported(name, arguments, text):
    with pytest.raises(UserError) as raised:
        make_sampler(SamplerSpec(name, arguments), None)
    assert text in str(raised.value)


def test_arguments_reach_optunas_sampler():
    sampler = make_sampler(SamplerSpec("TPESampler", {"multivariate": True, "n_startup_trials": 3}),
                           None)
    assert sampler.inner(5)._multivariate
    assert sampler.n_startup_trials == 3 and sampler.learns_from_infeasible
    assert make_sampler(SamplerSpec("nsga2", {"population_size": 7}), None).n_startup_trials == 7


class Registered:
    """An entry point."""

    def __init__(self, name, value):
        self.name = name
        self.value = value

    def load(self):
        return self.value


@pytest.mark.parametrize("value",
                         [RandomSampler, optuna.samplers.RandomSampler,
                          lambda seed, factor=1: optuna.samplers.RandomSampler(seed * factor)])
def test_installed_package_registers_a_sampler(monkeypatch, value):
    monkeypatch.setattr("scalesearch.samplers.entry_points",
                        lambda group: [Registered("mine", value)])
    sampler = make_sampler(SamplerSpec("mine", {}, 2), None, objectives=OBJECTIVES)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    study.optimize(lambda trial: (trial.suggest_float("x", 0, 1), trial.suggest_int("y", 1, 4)),
                   n_trials=4)
    with refuses("unknown-sampler", "`mine`"):
        make_sampler(SamplerSpec("mime"), None)


def test_installed_sampler_that_cannot_be_imported_is_an_error(monkeypatch):
    point = EntryPoint("mine", "no_such_module:Sampler", "scalesearch.samplers")
    monkeypatch.setattr("scalesearch.samplers.entry_points", lambda group: [point])
    with refuses("package-not-loaded", "no_such_module"):
        make_sampler(SamplerSpec("mine"), None)


@pytest.mark.parametrize("sampler", [optuna.samplers.RandomSampler(3),
                                     optuna.samplers.RandomSampler, RandomSampler(seed=3)])
def test_sampler_may_be_an_object_or_a_factory(sampler):
    study = optuna.create_study(sampler=make_sampler(sampler, None))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    assert len({trial.params["x"] for trial in study.trials}) == 3
