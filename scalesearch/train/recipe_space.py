"""Questions of a recipe: values in the language of spaces in place of constants, which a study answers.

::

    recipe: {steps: 2000, lr: 1e-3..8e-3 log, dropout: 0 | 0.1 | 0.3}

A question has a default: the first of alternatives, the middle of a range. It is what a study
trains by where nothing is proposed: its references, a teacher.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scalesearch.blocks.core import join_path
from scalesearch.errors import UserError
from scalesearch.space.binding.binder import Binder, KeyContext
from scalesearch.space.binding.config_reader import ConfigReader
from scalesearch.space.binding.static_checks import find_cycles
from scalesearch.space.parameters.param_values import ParameterSpace, ParamValues, SuggestFunction
from scalesearch.space.schema.bound_tree import ParameterNode, build_index
from scalesearch.space.schema.settings import NONE_TEXT
from scalesearch.space.schema.types import SchemaField, SchemaGroup
from scalesearch.space.syntax.composite_domains import iter_expressions
from scalesearch.space.syntax.diagnostics import Problem, UnbuildableError
from scalesearch.space.syntax.domains import ConstantDomain, InvalidDomain
from scalesearch.space.syntax.evaluator import ABSENT
from scalesearch.space.syntax.expressions import keys_of
from scalesearch.space.syntax.lexer import ValueSyntaxError
from scalesearch.space.syntax.nodes import MappingNode, Node, ScalarNode, unfold_dotted_keys
from scalesearch.space.syntax.parameters import Choice, Parameter, format_constant
from scalesearch.space.syntax.value_parser import parse_value
from scalesearch.train.recipe import BUDGET_KEYS, RECIPE_SCHEMA, Recipe

SECTION_NAME = "recipe"
KEY_PREFIX = f"{SECTION_NAME}."
DISTRIBUTION_MARKERS = ("|", "..", "=", " if ")  # of a text that is more than a constant
# Trainings of one study have one budget and are scored alike; the rest changes nothing that is
# learned.
FIXED_KEYS = (*BUDGET_KEYS, "preset", "score_splits", "measure", "validate_metric", "monitor", "device",
              "compile", "threads", "checkpoint_minutes", "name")


@dataclass(frozen=True)
class RecipeSpace:
    """The recipes that answers to questions make.

    Attributes:
        base_recipe: the recipe in which every question has its default.
        parameter_nodes: leaves of the keys that are asked.
        parameter_space: these, and constants that their expressions name.
    """

    base_recipe: Recipe
    parameter_nodes: tuple[ParameterNode, ...]
    parameter_space: ParameterSpace

    def parameters(self) -> list[tuple[str, Parameter]]:
        """Every parameter that may be asked, with its name, such as ``recipe.lr``."""
        return self.parameter_space.parameters()

    def resolve(self, sample_value: SuggestFunction) -> ParamValues:
        """Decides every key; see :meth:`Space.answer`."""
        return self.parameter_space.resolve(sample_value)

    @property
    def distribution_texts(self) -> dict[str, str]:
        """Key to its question, as the language writes it."""
        return {leaf.key.removeprefix(KEY_PREFIX): str(leaf.domain) for leaf in self.parameter_nodes}

    def recipe_values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Key of the recipe to the value that ``params`` give it.

        Raises:
            UserError: no recipe has these values together.
        """
        if not self.parameter_nodes:
            return {}
        answers = self.resolve(lambda name, parameter: params[name])
        for path, reason in answers.infeasible_values:
            raise UnbuildableError(path, reason)
        values = {leaf.key.removeprefix(KEY_PREFIX): None if answers[leaf.key] == NONE_TEXT
                  else answers[leaf.key] for leaf in self.parameter_nodes}
        self.build_recipe(values)
        return values

    def build_recipe(self, values: Mapping[str, Any]) -> Recipe:
        """The recipe with ``values`` for its questions.

        Raises UserError where these do not go together.
        """
        return Recipe.from_mapping(override_keys(self.base_recipe.to_json(), values))

    def params_of_recipe(self, recipe: Mapping[str, Any]) -> dict[str, Any] | None:
        """Params whose values ``recipe``, JSON or values by key, has; None where there are none."""
        known: dict[str, Any] = {}
        wanted = {leaf.key: _space_value(get_dotted(recipe, leaf.key.removeprefix(KEY_PREFIX)))
                  for leaf in self.parameter_nodes}
        for leaf in self.parameter_nodes:
            known |= self.parameter_space.domains[leaf.path].infer_params(
                wanted[leaf.key], wanted.__getitem__) or {}
        try:
            answers = self.resolve(lambda name, parameter: known[name])
        except (KeyError, UserError):
            return None
        return dict(answers.params) if all(answers[key] == value
                                           for key, value in wanted.items()) else None

    def default_params(self, overrides: Mapping[str, str]) -> dict[str, Any]:
        """Params of the default recipe, with the values ``overrides`` (key to text) for some of its questions.

        Raises:
            UserError: no such question, or no answer to it.
        """
        known: dict[str, Any] = {}
        for key, text in overrides.items():
            names = (KEY_PREFIX + key,
                     f"{KEY_PREFIX}{key}.{getattr(RECIPE_SCHEMA.fields.get(key), 'bare', None)}")
            leaf = next((leaf for leaf in self.parameter_nodes if leaf.key in names), None)
            if leaf is None:
                raise UserError(
                    f"recipe.{key}: it is no question of the study's recipe", code="unknown-key",
                    help=f"its questions are {', '.join(self.distribution_texts) or 'none'}")
            own = self.parameter_space.domains[leaf.path].infer_params(
                _parse_constant(text), lambda key: ABSENT)
            if own is None:
                raise UserError(f"recipe.{key}: `{text}` is no answer to `{leaf.domain}`",
                                code="illegal-value")
            known |= own
        return dict(
            self.resolve(lambda name, parameter: known.get(name,
                                                                 default_value(parameter))).params)

    def find_problems(self) -> Iterator[Problem]:
        """Yields answers that no recipe has while other questions have their defaults."""
        for leaf in self.parameter_nodes:
            for name, parameter in self.parameter_space.domains[leaf.path].parameters():
                for value in _extreme_values(parameter):
                    try:
                        self.recipe_values(self._params_with(name, value))
                    except UserError as error:
                        first = next(iter(getattr(error, "find_problems", ())), error)
                        yield Problem(leaf.position_of((0, 0)),
                                      f"{name}: {format_constant(value)}: {first.message}",
                                      first.help, code=first.code)

    def _params_with(self, name: str, value: Any) -> Mapping[str, Any]:
        """Params of the default recipe, but for one of them."""
        return self.resolve(lambda asked, parameter: value if asked == name
                                  else default_value(parameter)).params


EMPTY_RECIPE_SPACE = RecipeSpace(Recipe(steps=1), (), ParameterSpace([]))


def extract_parameters(
        node: Node | None, reader: ConfigReader) -> tuple[Node | None, list[ParameterNode]]:
    """Takes the questions out of the mapping ``node``; problems go to ``reader``.

    Returns:
        The mapping with a constant in place of each question, or without its key; the questions'
        leaves.
    """
    if not isinstance(node, MappingNode):
        return node, []
    binder = Binder(build_index(SchemaGroup({SECTION_NAME: RECIPE_SCHEMA})))
    binder.problems = reader.problems
    leaves: list[ParameterNode] = []
    closed = _replace_parameters(node, RECIPE_SCHEMA, SECTION_NAME, binder, leaves)
    reader.problems += find_cycles(leaves)
    return closed, leaves


def build_recipe_space(base: Recipe, parameters: list[ParameterNode]) -> RecipeSpace:
    """The space of ``parameters``; ``base`` has every other key."""
    named = {key for leaf in parameters for expr in iter_expressions(leaf.domain)
             for key in keys_of(expr)}
    named -= {leaf.key for leaf in parameters}
    if not parameters:
        return replace(EMPTY_RECIPE_SPACE, base_recipe=base)
    paths = build_index(SchemaGroup({SECTION_NAME: RECIPE_SCHEMA})).entries
    stored = base.to_json()
    constants = [
        ParameterNode(key, key, paths[key].field,
                      ConstantDomain(_space_value(get_dotted(stored,
                                                             key.removeprefix(KEY_PREFIX)))), (),
                      parameters[0].origin) for key in sorted(named)]
    space = RecipeSpace(base, tuple(parameters), ParameterSpace([*parameters, *constants]))
    return replace(space,
                   base_recipe=space.build_recipe(space.recipe_values(space.default_params({}))))


def override_keys(recipe: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON of ``recipe`` with ``values`` under their dotted keys."""
    made = dict(recipe)
    for key, value in values.items():
        head, _, rest = key.partition(".")
        made[head] = override_keys(made[head] if isinstance(made.get(head), Mapping) else {},
                                   {rest: value}) if rest else value
    return made


def get_dotted(recipe: Mapping[str, Any], key: str) -> Any:
    """The value under a dotted key; None where there is none."""
    if key in recipe:
        return recipe[key]
    head, _, rest = key.partition(".")
    inner = recipe.get(head)
    return get_dotted(inner, rest) if rest and isinstance(inner, Mapping) else None


def default_value(parameter: Parameter) -> Any:
    """The first alternative, or the middle of a range: the geometric one on a log scale."""
    if isinstance(parameter, Choice):
        return parameter.options[0]
    low = parameter.low
    high = parameter.high
    middle = math.sqrt(low * high) if parameter.log else (low + high) / 2
    grid = parameter.values()
    if grid is not None:
        return min(grid, key=lambda value: abs(value - middle))
    return rounded if low <= (rounded := float(f"{middle:.3g}")) <= high else middle


def _replace_parameters(table: MappingNode, group: SchemaGroup, path: str, binder: Binder,
                        leaves: list[ParameterNode]) -> MappingNode:
    entries = []
    for key, node in unfold_dotted_keys(table, binder.problems):
        child = group.fields.get(key.text)
        inner = join_path(path, key.text)
        if isinstance(child, SchemaGroup) and child.shorthand_key and _is_distribution(node):
            node = MappingNode(node.position,
                               ((ScalarNode(node.position, child.shorthand_key), node),))
        if isinstance(child, SchemaGroup) and isinstance(node, MappingNode):
            node = _replace_parameters(node, child, inner, binder, leaves)
        elif isinstance(child, SchemaField) and child.type not in (
                "text", "node") and _is_distribution(node):
            if (closed := _add_parameter(child, node, inner, binder, leaves)) is None:
                continue
            node = closed
        entries.append((key, node))
    return replace(table, entries=tuple(entries))


def _is_distribution(node: Node) -> bool:
    return isinstance(node,
                      ScalarNode) and any(sign in f" {node.text}" for sign in DISTRIBUTION_MARKERS)


def _add_parameter(field: SchemaField, node: Node, path: str, binder: Binder,
                   leaves: list[ParameterNode]) -> ScalarNode | None:
    """Notes the question ``node``; returns a constant in its place, None where only other answers tell it."""
    key = path.removeprefix(KEY_PREFIX)
    before = len(binder.problems)
    if key.partition(".")[0] in FIXED_KEYS:
        binder.report_problem(node.display_position,
                              f"`{path}` is the same for all trainings of a study",
                              "give one value", code="not-searchable")
        return None
    leaf = binder.bind_parameter(field, node, KeyContext(path, path, node.display_position))
    if len(binder.problems) > before or isinstance(leaf.domain, InvalidDomain):
        return None
    leaves.append(leaf)
    if any(True for _ in iter_expressions(leaf.domain)):
        return None
    value = ParameterSpace([leaf]).resolve(lambda name, parameter: default_value(parameter))[path]
    return ScalarNode(node.display_position, format_constant(value))


def _parse_constant(text: str) -> Any:
    try:
        spec = parse_value(text)
    except ValueSyntaxError:
        return text
    return spec.value if isinstance(spec, ConstantDomain) else text


def _space_value(value: Any) -> Any:
    """A recipe's value as the language has it."""
    return NONE_TEXT if value is None else value


def _extreme_values(parameter: Parameter) -> tuple[Any, ...]:
    """Values that stand for all: each of a choice, the ends of a range."""
    return parameter.options if isinstance(parameter, Choice) else (parameter.low, parameter.high)
