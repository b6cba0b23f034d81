"""Filter for rows of a table of trials, in the language of constraints."""

from __future__ import annotations

from typing import Any

import pandas as pd

from scalesearch.report.table import PARAM_PREFIX
from scalesearch.spaces.binding.name_resolution import byte_unit_errors
from scalesearch.spaces.schema.bound_tree import build_index
from scalesearch.spaces.schema.builtin import architecture_schema
from scalesearch.spaces.syntax.diagnostics import ConfigError, Problem, closest_match
from scalesearch.spaces.syntax.expressions import (
    ABSENT,
    Compare,
    EvaluationError,
    Name,
    evaluate,
    iter_subexpressions,
)
from scalesearch.spaces.syntax.lexer import ValueSyntaxError, split_layer
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
    byte_errors = [error for part in iter_subexpressions(expression) if isinstance(part, Compare)
                   for error in byte_unit_errors(part)]
    if byte_errors:
        raise ConfigError([Problem(node.position_of(error.span), error.message, error.help,
                                   code=error.code) for error in byte_errors])
    index = build_index(architecture_schema())
    key_of_column = {column: index.entries[path].key for column in trials
                     if (path := column.removeprefix(PARAM_PREFIX)) in index.entries}
    values = {str(value) for column in trials if column.startswith(PARAM_PREFIX)
              for value in trials[column]}
    # Names of parameters may have a layer, or leave out the variants of their path.
    paths = [column.removeprefix(PARAM_PREFIX) for column in trials]
    known_names = {*trials.columns, *values, *paths, *key_of_column.values()}
    for name in [node.text for node in iter_subexpressions(expression) if isinstance(node, Name)]:
        if not name.startswith("test.") and split_layer(name)[0] in known_names:
            continue
        suggestion = closest_match(name, [path for path in paths if not path.startswith("test.")])
        reason = ("a test score, which must not select candidates; use a validation score"
                  if name.startswith("test.") else "not a score, cost or parameter of a candidate")
        raise ConfigError([Problem(node.display_position, f"`{name}` is {reason}",
                                   f"did you mean `{suggestion}`?" if suggestion else None,
                                   code="unknown-key")])

    def is_true(row: pd.Series[Any]) -> bool:
        """Whether the expression is true for ``row``; False if it needs a missing value."""
        config = {key: row[column] for column, key in key_of_column.items()
                  if not _is_missing(row[column])}

        def lookup(name: str) -> Any:
            value = row.get(name, row.get(PARAM_PREFIX + name, name))
            reference = index.reference(name)
            if reference and value is name:
                return evaluate(reference, config.__getitem__)
            return ABSENT if _is_missing(value) else value

        try:
            return evaluate(expression, lookup) is True
        except EvaluationError:
            return False

    return trials[[is_true(row) for _, row in trials.iterrows()]]


def _is_missing(value: Any) -> bool:
    return not isinstance(value, list) and (value is None or value == "" or value != value)
