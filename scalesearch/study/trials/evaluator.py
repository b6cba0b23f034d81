"""Evaluation of proposals before any training: their costs and constraints."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from scalesearch.cost import CostBreakdown, evaluate_cost
from scalesearch.cost import Protocol as CostProtocol
from scalesearch.errors import UserError
from scalesearch.pareto.objective import Objective
from scalesearch.samplers.candidate_facts import CandidateFacts
from scalesearch.samplers.encoding import decode_params, suggest_params
from scalesearch.samplers.exact_feasible_sampler import ExactFeasibleSampler
from scalesearch.samplers.feasible_region import FeasibleRegion
from scalesearch.samplers.neighbor_batch import NeighborBatchSampler
from scalesearch.space.assembly.architecture import ModelSpec
from scalesearch.space.parameters.param_values import ParamValues, SuggestFunction
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.space.syntax.diagnostics import UnbuildableError
from scalesearch.space.syntax.parameters import Parameter
from scalesearch.study.config.fixed_architectures import FixedArchitecture
from scalesearch.study.trials.trial import Params, State, Trial
from scalesearch.train.recipe_space import EMPTY_RECIPE_SPACE, KEY_PREFIX, RecipeSpace

BUILDABLE_CONSTRAINT = "buildable"
MAX_CACHED = 2000  # evaluated proposals that are remembered, some ten kilobytes each
# draws after which a budget that none of them met counts as one that nothing meets
MAX_SAMPLES = 2000
# a slack is a logarithm of a ratio; nothing real is e^50 times a budget, and Optuna wants finite
# ones
MAX_SLACK = 50.0


class Limit(Protocol):
    """A limit of a study: a space's Constraint, or a budget."""

    @property
    def text(self) -> str:
        """The limit in words; its name."""

    def violation(self, lookup: Any) -> float:
        """Zero or less where the constraint holds; log(cost / budget) for a budget."""


class JointSpace:
    """Questions of a space and of a recipe, asked together."""

    def __init__(self, space: Any, recipe: RecipeSpace) -> None:
        self.parts = space, recipe

    def parameters(self) -> list[tuple[str, Parameter]]:
        """Every parameter of both."""
        return [dimension for part in self.parts for dimension in part.parameters()]

    def resolve(self, choose_value: SuggestFunction) -> ParamValues:
        """The params of both; what they mean, the evaluator says."""
        architecture, recipe = (part.resolve(choose_value).params for part in self.parts)
        return ParamValues({}, {**architecture, **recipe}, ())


class Evaluator:
    """Evaluates params of ``space``, and of ``recipe`` where that asks anything, by ``limits`` under ``protocol``.

    Attributes:
        searched: asks all params.
        names: of all constraints, the same for every trial and in the same order.
    """

    def __init__(self, space: Any, protocol: CostProtocol, limits: tuple[Limit, ...],
                 recipe: RecipeSpace = EMPTY_RECIPE_SPACE) -> None:
        self.space = space
        self.protocol = protocol
        self.limits = limits
        self.recipe = recipe
        self.joint_space = JointSpace(space, recipe) if recipe.parameter_nodes else space
        self.constraint_names = (BUILDABLE_CONSTRAINT,
                                 *dict.fromkeys(limit.text for limit in limits))
        self._cache: dict[tuple[tuple[str, str], ...], tuple[Trial, ModelSpec | None]] = {}

    def suggest_params(self, trial: Any) -> Any:
        """All answers where an Optuna trial suggests its parameters: a define-by-run function."""
        return suggest_params(self.joint_space, trial)

    def candidate_facts(self, params: Params,
                        objectives: tuple[Objective, ...] = ()) -> CandidateFacts:
        """Costs, constraints and identity of Optuna's ``params``, exact before training."""
        trial = self.evaluate(decode_params(self.joint_space, params).params)
        values = [None if one.is_measured or not trial.costs else float(trial.costs[one.name])
                  for one in objectives]
        return CandidateFacts(values, trial.constraints, trial.identity, bool(trial.costs))

    @cached_property
    def feasible_region(self) -> FeasibleRegion:
        """The part of the space that the limits allow."""
        of = self.space, self.protocol, self.limits
        return FeasibleRegion(self.suggest_params, self.candidate_facts,
                              lambda: ExactFeasibleSampler.of(*of),
                              lambda: NeighborBatchSampler.of(*of))

    def evaluate(self, params: Params) -> Trial:
        """The trial, of no number yet, that ``params`` make: pending or infeasible.

        Raises:
            KeyError: a parameter is not among ``params``.
        """
        trial = replace(self._evaluated(params)[0], params=params)
        try:
            return replace(trial, recipe_params=self.recipe_values(params))
        except UserError as error:  # values that are each right and do not go together
            return replace(trial, state=State.INFEASIBLE, reason=str(error),
                           constraints={**trial.constraints, BUILDABLE_CONSTRAINT: 1.0})

    def recipe_values(self, params: Params) -> Params:
        """Key of the recipe to its value by ``params``.

        Raises UserError where no recipe has these together.
        """
        return self.recipe.recipe_values(params)

    def identity(self, reference: FixedArchitecture) -> str | None:
        """The identity of a reference's trial."""
        return Trial(-1, State.PENDING, architecture=reference.architecture.id,
                     recipe_params=self.recipe_values(reference.recipe_params)).identity

    def architecture(self, params: Params) -> ModelSpec | None:
        """Architecture of ``params``; None where nothing can be built."""
        return self._evaluated(params)[1]

    def _evaluated(self, params: Params) -> tuple[Trial, ModelSpec | None]:
        key = tuple(sorted((name, repr(value))
                           for name, value in params.items() if not name.startswith(KEY_PREFIX)))
        if key not in self._cache:
            if len(self._cache) >= MAX_CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[key] = self._evaluate(params)
        return self._cache[key]

    def _evaluate(self, params: Params) -> tuple[Trial, ModelSpec | None]:
        answers = self.space.resolve(lambda path, parameter: params[path])
        try:
            architecture = self.space.architecture(answers)
            return self.evaluate_architecture(architecture, params), architecture
        except UnbuildableError as error:  # by itself, or as the artifact whose bytes or latency are asked for
            constraints = {name: float(name == BUILDABLE_CONSTRAINT)
                           for name in self.constraint_names}
            return Trial(-1, State.INFEASIBLE, params=params, config=dict(answers),
                         constraints=constraints, reason=str(error)), None

    def evaluate_architecture(self, architecture: ModelSpec, params: Params | None = None) -> Trial:
        """The trial that ``architecture`` is; without ``params``, one that the space could not have proposed."""
        price = evaluate_cost(architecture.block, self.protocol.for_candidates(architecture.config))

        def lookup(name: str) -> Any:
            return price[name] if name in COST_NAMES else architecture.config[name]

        constraints = {BUILDABLE_CONSTRAINT: 0.0} | {
            limit.text: max(-MAX_SLACK, min(MAX_SLACK, limit.violation(lookup)))
            for limit in self.limits}
        missed = [_miss(text, slack) for text, slack in constraints.items() if slack > 0]
        return Trial(-1, State.INFEASIBLE if missed else State.PENDING, params=params or {},
                     is_in_space=params is not None, architecture=architecture.id,
                     config=dict(architecture.config), costs=flatten_costs(price),
                     constraints=constraints, reason="; ".join(missed))


def flatten_costs(costs: CostBreakdown) -> dict[str, float]:
    """Every cost of a bill by its full name, such as ``params.total``."""
    return {**costs.values, **costs.load_balance, **costs.latency}


def _miss(text: str, slack: float) -> str:
    """Describes a missed limit.

    By how much is said of costs alone, whose slack is the logarithm of a ratio.
    """
    far = f" (by {math.expm1(slack):.1%})" if any(name in text for name in COST_NAMES) else ""
    return f"not {text}{far}"


@dataclass(frozen=True)
class FeasibilityEstimate:
    """Feasible share of a random sample of the space."""

    samples: int
    feasible: int
    violations: Mapping[str, int]  # limit to how many miss it
    # limit to the least slack of any; log(cost / budget) for a budget
    min_slacks: Mapping[str, float]


def estimate_feasibility(evaluator: Evaluator, seed: int, samples: int = MAX_SAMPLES,
                         max_feasible: int | None = None) -> FeasibilityEstimate:
    """Counts the feasible among random ``samples``; stops at ``max_feasible``, where given."""
    rng = random.Random(seed)
    feasible = 0
    drawn = 0
    missed = dict.fromkeys(evaluator.constraint_names, 0)
    nearest = dict.fromkeys(evaluator.constraint_names, math.inf)
    while drawn < samples and (max_feasible is None or feasible < max_feasible):
        params = evaluator.joint_space.resolve(lambda name, parameter: parameter.sample(rng)).params
        trial = evaluator.evaluate(params)
        drawn = drawn + 1
        feasible = feasible + trial.is_feasible
        for name, slack in trial.constraints.items():
            missed[name] += slack > 0
            if trial.costs:  # of what cannot be built, no limit is known
                nearest[name] = min(nearest[name], slack)
    return FeasibilityEstimate(drawn, feasible, missed, nearest)
