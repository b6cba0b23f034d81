"""Optuna's own contract tests of samplers, on the package's: they work in any Optuna study.

A grid has a space of its own, so it stands where trials ask for what it does not know of.
"""

from functools import partial

import optuna
import pytest
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
)

from scalesearch.samplers import SamplerSpec, make_sampler

WHOLE = {name: partial(make_sampler,
                       SamplerSpec(name, {} if name == "random" else {"n_startup_trials": 3}), None)
         for name in ("bayes", "local", "random", "tpe", "nsga2")} | {
    "nsga2": partial(make_sampler, SamplerSpec("nsga2", {"population_size": 4}), None)}
GRID = {"grid": partial(make_sampler, SamplerSpec("grid"),
                        lambda trial: trial.suggest_int("of its own", 0, 10**6))}
optuna.logging.set_verbosity(optuna.logging.WARNING)


class TestBasic(BasicSamplerTestCase):
    @pytest.fixture(params=[*WHOLE.values(), *GRID.values()], ids=[*WHOLE, *GRID])
    def sampler(self, request):
        return request.param


class TestRelative(RelativeSamplerTestCase):
    @pytest.fixture(params=WHOLE.values(), ids=WHOLE)
    def sampler(self, request):
        return request.param


class TestMultiObjective(MultiObjectiveSamplerTestCase):
    @pytest.fixture(params=[*WHOLE.values(), *GRID.values()], ids=[*WHOLE, *GRID])
    def sampler(self, request):
        return request.param
