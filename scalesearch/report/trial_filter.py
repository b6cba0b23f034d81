"""Conditions over the rows of a study's table: scores, costs and answers, in the language of constraints."""

from __future__ import annotations

from typing import Any

import pandas as pd

from scalesearch.report.table import PARAM_PREFIX
from scalesearch.space.syntax.diagnostics import ConfigError, Problem, closest_match
from scalesearch.space.syntax.evaluator import ABSENT, EvaluationError, evaluate
from scalesearch.space.syntax.expressions import Expr, Name, iter_subexpressions
from scalesearch.space.syntax.lexer import ValueSyntaxError
from scalesearch.space.syntax.nodes import scalar_from_text
from scalesearch.space.syntax.value_parser import parse_expression


def filter_trials(trials: pd.DataFrame, condition: str) -> pd.DataFrame:
    """The rows that meet ``condition``, such as ``params.total <= 2M and bleu >= 30``.

    Args:
        trials: as of :func:`scalesearch.report.table.trials_frame`.

    Raises:
        SpaceErrors: it is no condition, names what no row has, or speaks of scores on test.

    Example:
        >>> trials = pd.DataFrame({"bleu": [29.0, 31.0], "params.total": [1, 2]})
        >>> filter_trials(trials, "bleu >= 30")["params.total"].item()
        2
    """
    node = scalar_from_text("condition", "", condition)
    try:
        expression = parse_expression(condition)
    except ValueSyntaxError as problem:
        raise ConfigError([Problem(node.position_of(problem.span), problem.message, problem.help,
                                   code=problem.code)]) from None
    for name in _unknown(expression, trials):
        known = [column.removeprefix(PARAM_PREFIX)
                 for column in trials if not column.startswith("test.")]
        near = closest_match(name, known)
        what = "a score on test, which chooses nothing" if name.startswith(
            "test.") else "nothing that a candidate has"
        raise ConfigError([Problem(node.display_position, f"`{name}` is {what}",
                                   f"did you mean `{near}`?" if near else None,
                                   code="unknown-key")])
    return trials[[_holds(expression, row) for _, row in trials.iterrows()]]


def _unknown(expression: Expr, rows: pd.DataFrame) -> list[str]:
    """Names that are no column of ``rows``, and no word among the answers either."""
    words = {str(value) for column in rows if column.startswith(PARAM_PREFIX)
             for value in rows[column]}
    names = [node.text for node in iter_subexpressions(expression) if isinstance(node, Name)]
    return [name for name in names if name.startswith("test.") or
            not (name in rows or PARAM_PREFIX + name in rows or name in words)]


def _holds(expression: Expr, row: pd.Series[Any]) -> bool:
    """Whether it is true of ``row``; what a row lacks makes nothing true."""
    def lookup(name: str) -> Any:
        value = row.get(name, row.get(PARAM_PREFIX + name, name))
        return ABSENT if value is None or value == "" or value != value else value

    try:
        return evaluate(expression, lookup) is True
    except EvaluationError:
        return False
