"""Costs and constraints of proposed candidates, before training."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from scalesearch.blocks.sizes import is_number
from scalesearch.cost import CostBreakdown, evaluate_cost
from scalesearch.cost import Protocol as CostProtocol
from scalesearch.errors import UserError
from scalesearch.pareto import Objective
from scalesearch.samplers.candidate import Candidate, enumerate_candidates
from scalesearch.samplers.candidate_facts import CandidateFacts
from scalesearch.samplers.encoding import decode_params, suggest_params
from scalesearch.samplers.feasible_region import FeasibleRegion
from scalesearch.samplers.proxy import ProxyTable, ScoreProxy
from scalesearch.samplers.space_samplers import ExactFeasibleSampler, NeighborBatchSampler
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.spaces.parameters.param_values import ParamValues, SuggestFunction, plain_config
from scalesearch.spaces.schema.cost_names import COST_NAMES
from scalesearch.spaces.space import Space
from scalesearch.spaces.syntax.diagnostics import UnbuildableError
from scalesearch.spaces.syntax.parameters import Parameter
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.trials.trial import Params, State, Trial
from scalesearch.training.recipe_space import EMPTY_RECIPE_SPACE, KEY_PREFIX, RecipeSpace

BUILDABLE_CONSTRAINT = "buildable"
MAX_ENUMERATED = 1000  # configurations of a space whose feasible candidates are counted
MAX_CACHED = 2000  # evaluated candidates in the cache, about ten kilobytes each
# a budget that none of these samples meets counts as infeasible
MAX_SAMPLES = 2000
# Optuna requires finite violations; a violation is the logarithm of a ratio
MAX_SLACK = 50.0


class Limit(Protocol):
    """Limit of a study: a constraint of the space, or a budget."""

    @property
    def text(self) -> str:
        """Text of the limit, which is its name."""

    def violation(self, lookup: Callable[[str], Any]) -> float:
        """Return 0 or less if the limit is met; log(cost / budget) for a budget."""


class JointSpace:
    """Parameters of a space and of a recipe."""

    def __init__(self, space: Space, recipe: RecipeSpace) -> None:
        self.parts = space, recipe

    def parameters(self) -> list[tuple[str, Parameter]]:
        """Return the parameters of both."""
        return [parameter for part in self.parts for parameter in part.parameters()]

    def resolve(self, choose_value: SuggestFunction) -> ParamValues:
        """Return the values of both; the evaluator separates them."""
        architecture, recipe = (part.resolve(choose_value).params for part in self.parts)
        return ParamValues({}, {**architecture, **recipe}, ())


class Evaluator:
    """Evaluator of candidates of ``space``, and of ``recipe`` if it has parameters.

    Args:
        space: search space.
        protocol: cost protocol.
        limits: constraints and budgets.
        recipe: search space of the recipe.

    Attributes:
        joint_space: parameters of both spaces.
        constraint_names: names of all constraints, equal for all trials.
    """

    def __init__(self, space: Space, protocol: CostProtocol, limits: tuple[Limit, ...],
                 recipe: RecipeSpace = EMPTY_RECIPE_SPACE) -> None:
        self.space = space
        self.protocol = protocol
        self.limits = limits
        self.recipe = recipe
        self.joint_space = JointSpace(space, recipe) if recipe.parameter_nodes else space
        self.constraint_names = BUILDABLE_CONSTRAINT, *dict.fromkeys(limit.text for limit in limits)
        self._cache: dict[tuple[tuple[str, str], ...], tuple[Trial, ModelSpec | None]] = {}

    def suggest_params(self, trial: Any) -> Any:
        """Return the values that an Optuna trial suggests (a define-by-run function)."""
        return suggest_params(self.joint_space, trial)

    def candidate_facts(self, params: Params,
                        objectives: tuple[Objective, ...] = ()) -> CandidateFacts:
        """Return exact costs, constraints and identity of Optuna's ``params``."""
        trial = self.evaluate(decode_params(self.joint_space, params).params)
        values = [None if objective.is_measured or not trial.costs
                  else float(trial.costs[objective.name]) for objective in objectives]
        return CandidateFacts(values, trial.constraints, trial.identity, bool(trial.costs))

    def score_proxy(self, name: str) -> ScoreProxy:
        """Return the proxy ``name``: a parameter, a cost, or a CSV file (see :class:`ProxyTable`).

        Raises:
            UserError: the name is unknown, or the file is invalid.
        """
        parameters = [path for path, _ in self.joint_space.parameters()]
        if not name.endswith(".csv") and name not in (*parameters, *COST_NAMES):
            raise UserError(f"proxy {name}: neither a cost, a parameter of the space nor a "
                            "CSV file", key="sampler.proxy", code="unknown-metric")
        table = ProxyTable(Path(name), parameters) if name.endswith(".csv") else None

        def evaluate(params: Params) -> float | None:
            values = decode_params(self.joint_space, params).params
            if table is not None:
                return table(values)
            value = values[name] if name in values else self.evaluate(values).costs.get(name)
            return value if is_number(value) else None

        return ScoreProxy(Path(name).name, evaluate)

    @cached_property
    def feasible_region(self) -> FeasibleRegion:
        """Candidates that meet the limits."""
        arguments = self.space, self.protocol, self.limits
        return FeasibleRegion(self.suggest_params, self.candidate_facts,
                              lambda: ExactFeasibleSampler.of(*arguments),
                              lambda: NeighborBatchSampler.of(*arguments))

    def evaluate(self, params: Params) -> Trial:
        """Return a pending or infeasible trial for ``params``, without a number.

        Raises:
            KeyError: a parameter is missing.
        """
        trial = self._evaluated(params)[0].replace(params=params)
        try:
            return trial.replace(recipe_params=self.recipe.recipe_values(params))
        except UserError as error:  # the values cannot be combined
            return trial.replace(state=State.INFEASIBLE, reason=str(error),
                                 constraints={**trial.constraints, BUILDABLE_CONSTRAINT: 1.0})

    def count_feasible(self, limit: int) -> int:
        """Count the different feasible candidates, up to ``limit``.

        Spaces with more than ``MAX_ENUMERATED`` configurations, or with a continuous range, are
        assumed to have ``limit`` candidates.
        """
        if self._candidates is None:
            return limit
        identities: set[str | None] = set()
        for candidate in self._candidates:
            if len(identities) == limit:
                break
            facts = self.candidate_facts(candidate.params)
            if facts.is_feasible:
                identities.add(facts.identity)
        return len(identities)

    @cached_property
    def _candidates(self) -> list[Candidate] | None:
        """All candidates of a small space, enumerated once; None for another space."""
        try:
            candidates = list(islice(enumerate_candidates(self.suggest_params), MAX_ENUMERATED + 1))
        except UserError:  # a continuous range
            return None
        return candidates if len(candidates) <= MAX_ENUMERATED else None

    def identity(self, reference: FixedArchitecture) -> str | None:
        """Return the identity of a reference."""
        return Trial(-1, State.PENDING, architecture=reference.architecture.id,
                     recipe_params=self.recipe.recipe_values(reference.recipe_params)).identity

    def architecture(self, params: Params) -> ModelSpec | None:
        """Return the architecture of ``params``; None if it cannot be built."""
        return self._evaluated(params)[1]

    def _evaluated(self, params: Params) -> tuple[Trial, ModelSpec | None]:
        key = tuple(sorted((name, repr(value))
                           for name, value in params.items() if not name.startswith(KEY_PREFIX)))
        if key not in self._cache:
            if len(self._cache) >= MAX_CACHED:
                del self._cache[next(iter(self._cache))]
            values = self.space.resolve(lambda path, parameter: params[path])
            try:
                architecture = self.space.architecture(values)
                self._cache[key] = self.evaluate_architecture(architecture, params), architecture
            except UnbuildableError as error:  # or the export format does not support it
                constraints = {name: float(name == BUILDABLE_CONSTRAINT)
                               for name in self.constraint_names}
                self._cache[key] = Trial(-1, State.INFEASIBLE, params=params,
                                         config=plain_config(values), constraints=constraints,
                                         reason=str(error)), None
        return self._cache[key]

    def evaluate_architecture(self, architecture: ModelSpec, params: Params | None = None) -> Trial:
        """Return the trial of an architecture.

        Without ``params``, it is outside the space.
        """
        protocol = self.protocol.for_candidates(architecture.config)
        costs = evaluate_cost(architecture.block, protocol)

        def lookup(name: str) -> Any:
            return costs[name] if name in COST_NAMES else architecture.config[name]

        constraints = {BUILDABLE_CONSTRAINT: 0.0} | {
            limit.text: max(-MAX_SLACK, min(MAX_SLACK, limit.violation(lookup)))
            for limit in self.limits}
        violated = []
        for text, violation in constraints.items():
            if violation > 0:
                is_cost = any(name in text for name in COST_NAMES)
                excess = f" (by {math.expm1(violation):.1%})" if is_cost else ""
                violated.append(f"not {text}{excess}")
        return Trial(-1, State.INFEASIBLE if violated else State.PENDING, params=params or {},
                     is_in_space=params is not None, architecture=architecture.id,
                     config=dict(architecture.config), costs=flatten_costs(costs),
                     constraints=constraints, reason="; ".join(violated))


def flatten_costs(costs: CostBreakdown) -> dict[str, float]:
    """Return all costs by their full names, such as ``params.total``."""
    return {**costs.values, **costs.load_balance, **costs.latency}


@dataclass(frozen=True)
class FeasibilityEstimate:
    """Feasible share of random samples of the space.

    Attributes:
        samples: number of samples.
        feasible: number of feasible samples.
        violations: number of samples that violate each limit.
        min_slacks: smallest violation of each limit; log(cost / budget) for a budget.
    """

    samples: int
    feasible: int
    violations: Mapping[str, int]
    min_slacks: Mapping[str, float]


def estimate_feasibility(evaluator: Evaluator, seed: int, samples: int = MAX_SAMPLES,
                         max_feasible: int | None = None) -> FeasibilityEstimate:
    """Count feasible candidates among random samples.

    Stop at ``max_feasible`` if it is set.
    """
    rng = random.Random(seed)
    feasible = 0
    n_samples = 0
    violations = dict.fromkeys(evaluator.constraint_names, 0)
    min_violations = dict.fromkeys(evaluator.constraint_names, math.inf)
    while n_samples < samples and (max_feasible is None or feasible < max_feasible):
        params = evaluator.joint_space.resolve(lambda name, parameter: parameter.sample(rng)).params
        trial = evaluator.evaluate(params)
        n_samples += 1
        feasible += trial.is_feasible
        for name, violation in trial.constraints.items():
            violations[name] += violation > 0
            if trial.costs:  # limits of candidates that cannot be built are unknown
                min_violations[name] = min(min_violations[name], violation)
    return FeasibilityEstimate(n_samples, feasible, violations, min_violations)
