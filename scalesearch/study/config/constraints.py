"""The limits of a study: the space's constraints and the study's budget, each part a limit of its own."""

from dataclasses import replace

from scalesearch.space import Constraint, Space
from scalesearch.space.binding.name_resolution import Resolver
from scalesearch.space.schema.bound_tree import index_of
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.space.syntax.diagnostics import Problem, SpaceErrors, suggest
from scalesearch.space.syntax.expressions import Compare, Logic, Ref, Value
from scalesearch.space.syntax.lexer import PATH, SyntaxProblem
from scalesearch.space.syntax.nodes import Text
from scalesearch.space.syntax.value_parser import parse_expression


def budget_of(space: Space, node: Text) -> Constraint:
    """The budget that a study file writes: the name of one of the space's, or an expression over answers and costs.

    Raises:
        SpaceErrors: no such budget, or the expression is wrong.
    """
    if node.text in space.budgets:
        return space.budgets[node.text]
    if PATH.fullmatch(node.text) and "." not in node.text:
        there = suggest(node.text, space.budgets) if space.budgets else "the space names none; write it out"
        raise SpaceErrors([Problem(node.here, f"the space has no budget `{node.text}`", there)])
    problems: list[Problem] = []

    def complain(problem: SyntaxProblem) -> None:
        problems.append(Problem(node.at(problem.span), problem.message, problem.help))

    try:
        expression = Resolver(index_of(space.schema), "", True, complain).truth(parse_expression(node.text))
    except SyntaxProblem as problem:
        complain(problem)
    if problems:
        raise SpaceErrors(problems)
    return Constraint(expression, node.here)


def parts(constraint: Constraint) -> tuple[Constraint, ...]:
    """``a and b`` as two limits: a proposer then learns of each by how much it is missed."""
    match constraint.expression:
        case Logic("and", operands):
            return tuple(part for operand in operands for part in parts(replace(constraint, expression=operand)))
    return (constraint,)


def limits(space: Space, budget: Constraint | None) -> tuple[Constraint, ...]:
    """Every limit a candidate must meet: the space's ``where``, then the budget."""
    whole = (*space.where, *((budget,) if budget else ()))
    return tuple(part for constraint in whole for part in parts(constraint))


def bounds(constraints: tuple[Constraint, ...]) -> dict[str, float]:
    """Cost to the largest value allowed, for every limit of the form ``params.total <= 10M``."""
    found: dict[str, float] = {}
    for constraint in constraints:
        match constraint.expression:
            case Compare(Ref(_, name), (("<=" | "<", Value(most)),)) if name in COST_NAMES:
                found[name] = min(float(most), found.get(name, float("inf")))
            case Compare(Value(most), ((">=" | ">", Ref(_, name)),)) if name in COST_NAMES:
                found[name] = min(float(most), found.get(name, float("inf")))
    return found
