"""Filter for rows of a table of trials, in the language of constraints."""

from __future__ import annotations

from typing import Any

import pandas as pd

from scalesearch.report.table import PARAM_PREFIX
from scalesearch.spaces.syntax.diagnostics import ConfigError, Problem, closest_match
from scalesearch.spaces.syntax.expressions import (
    ABSENT,
    EvaluationError,
    Expr,
    Name,
    evaluate,
    iter_subexpressions,
)
from scalesearch.spaces.syntax.lexer import ValueSyntaxError
from scalesearch.spaces.syntax.nodes import scalar_from_text
from scalesearch.spaces.syntax.parser import parse_expression


def filter_trials(trials: pd.DataFrame, condition: str) -> pd.DataFrame:
    """Select the rows that meet a condition on scores, costs and parameters.

    Args:
        trials: a row per trial (see :func:`scalesearch.report.table.trials_frame`).
        condition: expression such as ``params.total <= 2M and bleu >= 30``.

    Raises:
        ConfigError: the condition has a syntax error, an unknown name or a test score.

    Example:
        >>> trials = pd.DataFrame({"bleu": [29.0, 31.0], "params.total": [1, 2]})
        >>> filter_trials(trials, "bleu >= 30")["params.total"].item()
        2
    """
    node = scalar_from_text("condition", "", condition)
    try:
        expression = parse_expression(condition)
    except ValueSyntaxError as error:
        raise ConfigError([Problem(node.position_of(error.span), error.message, error.help,
                                   code=error.code)]) from None
    for name in _invalid_names(expression, trials):
        valid_names = [column.removeprefix(PARAM_PREFIX)
                       for column in trials if not column.startswith("test.")]
        suggestion = closest_match(name, valid_names)
        reason = ("a test score, which must not select candidates; use a validation score"
                  if name.startswith("test.") else "not a score, cost or parameter of a candidate")
        raise ConfigError([Problem(node.display_position, f"`{name}` is {reason}",
                                   f"did you mean `{suggestion}`?" if suggestion else None,
                                   code="unknown-key")])
    return trials[[_is_true(expression, row) for _, row in trials.iterrows()]]


def _invalid_names(expression: Expr, trials: pd.DataFrame) -> list[str]:
    """Test scores, and names that are neither a column nor a value of a parameter."""
    values = {str(value) for column in trials if column.startswith(PARAM_PREFIX)
              for value in trials[column]}
    names = [node.text for node in iter_subexpressions(expression) if isinstance(node, Name)]
    return [name for name in names if name.startswith("test.") or
            not (name in trials or PARAM_PREFIX + name in trials or name in values)]


def _is_true(expression: Expr, row: pd.Series[Any]) -> bool:
    """Whether the expression is true for ``row``; False if it needs a missing value."""
    def lookup(name: str) -> Any:
        value = row.get(name, row.get(PARAM_PREFIX + name, name))
        return ABSENT if value is None or value == "" or value != value else value

    try:
        return evaluate(expression, lookup) is True
    except EvaluationError:
        return False
