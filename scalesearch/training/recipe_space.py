"""Parameters of a recipe: values in the language of spaces instead of constants.

::

    recipe: {steps: 2000, lr: 1e-3..8e-3 log, dropout: 0 | 0.1 | 0.3}

A study samples the parameters. Each has a default: the first of alternatives, the middle of a
range. Training runs that are not sampled, such as references and teachers, use the defaults.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scalesearch.blocks.core import join_path
from scalesearch.config.model import NONE_TEXT, schema_of
from scalesearch.config.reader import ConfigReader
from scalesearch.errors import UserError
from scalesearch.spaces.binding.binder import Binder, KeyContext
from scalesearch.spaces.binding.static_checks import find_cycles
from scalesearch.spaces.parameters.param_values import ParameterSpace, ParamValues, SuggestFunction
from scalesearch.spaces.schema.bound_tree import ParameterNode, build_index
from scalesearch.spaces.schema.types import SchemaField, SchemaGroup
from scalesearch.spaces.syntax.diagnostics import Problem, UnbuildableError
from scalesearch.spaces.syntax.domains import ConstantDomain, InvalidDomain, iter_expressions
from scalesearch.spaces.syntax.expressions import ABSENT, keys_of
from scalesearch.spaces.syntax.lexer import ValueSyntaxError
from scalesearch.spaces.syntax.nodes import MappingNode, Node, ScalarNode, unfold_dotted_keys
from scalesearch.spaces.syntax.parameters import Choice, Parameter, format_constant
from scalesearch.spaces.syntax.parser import parse_value
from scalesearch.training.recipe import BUDGET_KEYS, Recipe

SECTION_NAME = "recipe"
KEY_PREFIX = f"{SECTION_NAME}."
DISTRIBUTION_MARKERS = ("|", "..", "=", " if ")  # in text that is not a constant
# All training runs of a study have the same budget and scoring. The other keys do not change the
# model.
FIXED_KEYS = (*BUDGET_KEYS, "preset", "score_splits", "measure", "validate_metric", "monitor",
              "device", "compile", "bucketing", "threads", "checkpoint_minutes", "name")


@dataclass(frozen=True)
class RecipeSpace:
    """Space of recipes that differ in parameters.

    Attributes:
        base_recipe: the recipe with the default of every parameter.
        parameter_nodes: the keys that have parameters.
        parameter_space: these keys, and constants that their expressions use.
    """

    base_recipe: Recipe
    parameter_nodes: tuple[ParameterNode, ...]
    parameter_space: ParameterSpace

    def parameters(self) -> list[tuple[str, Parameter]]:
        """Return every parameter with its name, such as ``recipe.lr``."""
        return self.parameter_space.parameters()

    def resolve(self, sample_value: SuggestFunction) -> ParamValues:
        """Resolve the value of every key; see :meth:`ParameterSpace.resolve`."""
        return self.parameter_space.resolve(sample_value)

    @property
    def distribution_texts(self) -> dict[str, str]:
        """Distribution of each key, in the language of spaces."""
        return {node.key.removeprefix(KEY_PREFIX): str(node.domain)
                for node in self.parameter_nodes}

    def recipe_values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the recipe's keys for ``params``.

        Raises:
            UserError: a recipe cannot have these values together.
        """
        if not self.parameter_nodes:
            return {}
        resolved = self.resolve(lambda name, parameter: params[name])
        for path, reason in resolved.infeasible_values:
            raise UnbuildableError(path, reason)
        values = {}
        for node in self.parameter_nodes:
            value = resolved[node.key]
            values[node.key.removeprefix(KEY_PREFIX)] = None if value == NONE_TEXT else value
        self.build_recipe(values)
        return values

    def build_recipe(self, values: Mapping[str, Any]) -> Recipe:
        """Return the recipe with these values of its keys.

        Raises:
            UserError: the values do not fit together.
        """
        return Recipe.from_mapping(override_keys(self.base_recipe.model_dump(), values))

    def params_of_recipe(self, recipe: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return params with the values of ``recipe``; None if impossible.

        ``recipe`` is JSON, or values by key.
        """
        values = {node.key: _space_value(get_dotted(recipe, node.key.removeprefix(KEY_PREFIX)))
                  for node in self.parameter_nodes}
        params: dict[str, Any] = {}
        for node in self.parameter_nodes:
            domain = self.parameter_space.domains[node.path]
            params |= domain.infer_params(values[node.key], values.__getitem__) or {}
        try:
            resolved = self.resolve(lambda name, parameter: params[name])
        except (KeyError, UserError):
            return None
        if any(resolved[key] != value for key, value in values.items()):
            return None
        return dict(resolved.params)

    def default_params(self, overrides: Mapping[str, str]) -> dict[str, Any]:
        """Return the params of the default recipe, with values for some keys.

        Args:
            overrides: key to text.

        Raises:
            UserError: a key has no parameter, or a value is not possible.
        """
        params: dict[str, Any] = {}
        for key, text in overrides.items():
            shorthand_key = getattr(schema_of(Recipe).fields.get(key), "shorthand_key", None)
            names = KEY_PREFIX + key, f"{KEY_PREFIX}{key}.{shorthand_key}"
            node = next((node for node in self.parameter_nodes if node.key in names), None)
            if node is None:
                raise UserError(f"recipe.{key}: it is not a parameter of the study's recipe",
                                code="unknown-key",
                                help="its parameters are "
                                f"{', '.join(self.distribution_texts) or 'none'}")
            domain = self.parameter_space.domains[node.path]
            try:
                parsed = parse_value(text)
            except ValueSyntaxError:
                value: Any = text
            else:
                value = parsed.value if isinstance(parsed, ConstantDomain) else text
            inferred = domain.infer_params(value, lambda key: ABSENT)
            if inferred is None:
                raise UserError(f"recipe.{key}: `{text}` is not a value of `{node.domain}`",
                                code="illegal-value")
            params |= inferred
        return self._with_defaults(params)

    def find_problems(self) -> Iterator[Problem]:
        """Yield values that are invalid if all other parameters have their defaults."""
        for node in self.parameter_nodes:
            for name, parameter in self.parameter_space.domains[node.path].parameters():
                extremes = (parameter.options if isinstance(parameter, Choice)
                            else (parameter.low, parameter.high))
                for value in extremes:
                    try:
                        self.recipe_values(self._with_defaults({name: value}))
                    except UserError as error:
                        first = next(iter(getattr(error, "problems", ())), error)
                        message = f"{name}: {format_constant(value)}: {first.message}"
                        yield Problem(node.position_of((0, 0)), message, first.help,
                                      code=first.code)

    def _with_defaults(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``params`` with the defaults of the other parameters."""
        resolved = self.resolve(lambda name, parameter: params.get(name, default_value(parameter)))
        return dict(resolved.params)


EMPTY_RECIPE_SPACE = RecipeSpace(Recipe(steps=1), (), ParameterSpace([]))


def extract_parameters(
        node: Node | None, reader: ConfigReader) -> tuple[Node | None, list[ParameterNode]]:
    """Replace the parameters in a mapping by constants.

    Problems are added to ``reader``.

    Returns:
        The mapping with a constant in place of each parameter, or without its key; the parameters.
    """
    if not isinstance(node, MappingNode):
        return node, []
    binder = Binder(build_index(SchemaGroup({SECTION_NAME: schema_of(Recipe)})))
    binder.problems = reader.problems
    parameter_nodes: list[ParameterNode] = []
    constants = _replace_parameters(node, schema_of(Recipe), SECTION_NAME, binder, parameter_nodes)
    reader.problems += find_cycles(parameter_nodes)
    return constants, parameter_nodes


def build_recipe_space(base: Recipe, parameters: list[ParameterNode]) -> RecipeSpace:
    """Build the space of ``parameters``; all other keys have the values of ``base``."""
    if not parameters:
        return replace(EMPTY_RECIPE_SPACE, base_recipe=base)
    used_keys = {key for node in parameters for expression in iter_expressions(node.domain)
                 for key in keys_of(expression)}
    paths = build_index(SchemaGroup({SECTION_NAME: schema_of(Recipe)})).entries
    stored = base.model_dump()
    constants = []
    for key in sorted(used_keys - {node.key for node in parameters}):
        value = _space_value(get_dotted(stored, key.removeprefix(KEY_PREFIX)))
        constants.append(ParameterNode(key, key, paths[key].field, ConstantDomain(value), (),
                                       parameters[0].origin))
    space = RecipeSpace(base, tuple(parameters), ParameterSpace([*parameters, *constants]))
    return replace(space,
                   base_recipe=space.build_recipe(space.recipe_values(space.default_params({}))))


def override_keys(recipe: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of ``recipe`` with ``values`` under their dotted keys."""
    result = dict(recipe)
    for key, value in values.items():
        head, _, tail = key.partition(".")
        if tail:
            inner = result[head] if isinstance(result.get(head), Mapping) else {}
            result[head] = override_keys(inner, {tail: value})
        else:
            result[head] = value
    return result


def get_dotted(recipe: Mapping[str, Any], key: str) -> Any:
    """Return the value under a dotted key; None if it is missing."""
    if key in recipe:
        return recipe[key]
    head, _, tail = key.partition(".")
    inner = recipe.get(head)
    return get_dotted(inner, tail) if tail and isinstance(inner, Mapping) else None


def default_value(parameter: Parameter) -> Any:
    """Return the first option, or the (on a log scale geometric) middle of a range."""
    if isinstance(parameter, Choice):
        return parameter.options[0]
    low = parameter.low
    high = parameter.high
    middle = math.sqrt(low * high) if parameter.log else (low + high) / 2
    grid = parameter.values()
    if grid is not None:
        return min(grid, key=lambda value: abs(value - middle))
    rounded = float(f"{middle:.3g}")
    return rounded if low <= rounded <= high else middle


def _replace_parameters(table: MappingNode, group: SchemaGroup, path: str, binder: Binder,
                        parameter_nodes: list[ParameterNode]) -> MappingNode:
    entries = []
    for key, node in unfold_dotted_keys(table, binder.problems):
        child = group.fields.get(key.text)
        child_path = join_path(path, key.text)
        if isinstance(child, SchemaGroup) and child.shorthand_key and _is_distribution(node):
            node = MappingNode(node.position,
                               ((ScalarNode(node.position, child.shorthand_key), node),))
        if isinstance(child, SchemaGroup) and isinstance(node, MappingNode):
            node = _replace_parameters(node, child, child_path, binder, parameter_nodes)
        elif isinstance(child, SchemaField) and child.type not in (
                "text", "node") and _is_distribution(node):
            constant = _add_parameter(child, node, child_path, binder, parameter_nodes)
            if constant is None:
                continue
            node = constant
        entries.append((key, node))
    return replace(table, entries=tuple(entries))


def _is_distribution(node: Node) -> bool:
    return isinstance(node, ScalarNode) and any(
        marker in f" {node.text}" for marker in DISTRIBUTION_MARKERS)


def _add_parameter(field: SchemaField, node: Node, path: str, binder: Binder,
                   parameter_nodes: list[ParameterNode]) -> ScalarNode | None:
    """Add a parameter to ``parameter_nodes``.

    Returns:
        A constant in place of the parameter; None if it depends on other keys, or is invalid.
    """
    key = path.removeprefix(KEY_PREFIX)
    n_problems = len(binder.problems)
    if key.partition(".")[0] in FIXED_KEYS:
        binder.report_problem(node.display_position,
                              f"`{path}` is the same for all training runs of a study",
                              "give one value", code="not-searchable")
        return None
    parameter_node = binder.bind_parameter(field, node,
                                           KeyContext(path, path, node.display_position))
    if len(binder.problems) > n_problems or isinstance(parameter_node.domain, InvalidDomain):
        return None
    parameter_nodes.append(parameter_node)
    if any(True for _ in iter_expressions(parameter_node.domain)):
        return None
    resolved = ParameterSpace([parameter_node]).resolve(
        lambda name, parameter: default_value(parameter))
    return ScalarNode(node.display_position, format_constant(resolved[path]))


def _space_value(value: object) -> Any:
    """Convert a value of a recipe to a value of the language of spaces."""
    return NONE_TEXT if value is None else value
