"""Functions of sizes that are ints or, for a population, int64 arrays.

For a population, each size is an array with one value per candidate. Code that branches on a size
calls :func:`decide`. If the result differs between candidates, it raises
:class:`PopulationSplitError`, and :func:`map_structures` splits the population.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard, TypeVar

MAX_LOOKUP_RANGE = 1 << 20  # longest range of values for which a lookup table is used
T = TypeVar("T")


class PopulationSplitError(Exception):
    """Raised if a decision differs between the candidates of a population.

    Args:
        labels: an int per candidate; candidates with equal labels have equal decisions.
    """

    def __init__(self, labels: Any) -> None:
        super().__init__("the population has to be split")
        self.labels = labels

    def masks(self) -> Iterator[Any]:
        """Yield a mask (candidates,) for each part of the population."""
        import numpy as np

        for label in np.unique(self.labels):
            yield self.labels == label


def map_structures(evaluate: Callable[[Any], T], start: int, end: int) -> Iterator[tuple[Any, T]]:
    """Evaluate the candidates ``start`` to ``end`` - 1, in groups with equal decisions.

    Args:
        evaluate: evaluates a group: a slice, or an array of indices. If it raises
            PopulationSplitError, the group is split, and each part is evaluated.

    Yields:
        groups and their results.
    """
    import numpy as np

    queue: list[Any] = [slice(start, end)]
    while queue:
        group = queue.pop()
        try:
            result = evaluate(group)
        except PopulationSplitError as split:
            indices = np.arange(end)[group]
            queue += [indices[mask] for mask in split.masks()]
        else:
            yield group, result


def is_number(x: Any) -> TypeGuard[int | float]:
    """Return whether ``x`` is an int or a float; a bool is not a number."""
    return isinstance(x, int | float) and not isinstance(x, bool)


def is_array(x: Any) -> bool:
    """Return whether ``x`` is an array or polynomial with one value per candidate."""
    return hasattr(x, "dtype")


def evaluate_size(x: Any) -> Any:
    """Return a size as a number or an array; a polynomial is evaluated."""
    return x.values() if hasattr(x, "terms") else x


def decide(condition: Any) -> bool:
    """Return ``condition`` as a bool.

    Raises:
        PopulationSplitError: it is true for some candidates only.
    """
    if not is_array(condition):
        return bool(condition)
    import numpy as np

    condition = np.asarray(condition)
    if condition.all():
        return True
    if not condition.any():
        return False
    raise PopulationSplitError(condition.astype("int64"))


def require_single_value(x: Any) -> Any:
    """Return ``x`` as a number.

    Raises:
        PopulationSplitError: candidates have different values.
    """
    if not is_array(x):
        return x
    import numpy as np

    x = evaluate_size(x)
    if (x == x[0]).all():
        return x[0].item()
    raise PopulationSplitError(np.unique(x, return_inverse=True)[1])


def is_set(x: Any) -> bool:
    """Return whether an optional size is set: anything except the int 0."""
    return is_array(x) or x != 0


def may_be_nonzero(x: Any) -> bool:
    """Return whether a size is not 0 for at least one candidate."""
    if hasattr(x, "terms"):
        return bool(x.terms)
    return bool(x.any()) if is_array(x) else x != 0


def minimum(x: Any, y: Any) -> Any:
    """Return the elementwise minimum of two sizes."""
    x = evaluate_size(x)
    y = evaluate_size(y)
    return select_where(x < y, x, y)


def maximum(x: Any, y: Any) -> Any:
    """Return the elementwise maximum of two sizes."""
    x = evaluate_size(x)
    y = evaluate_size(y)
    return select_where(x > y, x, y)


def select_where(condition: Any, then: Any, other: Any) -> Any:
    """Return ``then`` for candidates with ``condition``, ``other`` for the others."""
    if is_array(condition):
        import numpy as np

        return np.where(condition, evaluate_size(then), evaluate_size(other))
    return then if condition else other


def map_values(x: Any, function: Callable[[int], Any]) -> Any:
    """Apply ``function`` to each distinct value of ``x``.

    Args:
        x: a size.
        function: returns a number or a tuple of numbers.

    Returns:
        The result, or arrays of the results with one value per candidate.
    """
    if not is_array(x):
        return function(x)
    import numpy as np

    x = evaluate_size(x)
    low = int(x.min())
    high = int(x.max())
    if high - low > MAX_LOOKUP_RANGE:
        values, index = np.unique(x, return_inverse=True)
        result = np.array([function(value.item()) for value in values])[index]
    else:
        values = np.flatnonzero(np.bincount(x - low)) + low
        results = np.array([function(value.item()) for value in values])
        table = np.empty((high - low + 1, *results.shape[1:]), results.dtype)
        table[values - low] = results
        result = table[x - low]
    if result.ndim == 2:
        return tuple(np.ascontiguousarray(column) for column in result.T)
    return result


def square_root(x: Any) -> Any:
    """Return the square root, correctly rounded for both numbers and arrays."""
    if is_array(x):
        import numpy as np

        return np.sqrt(evaluate_size(x))
    return math.sqrt(x)


def memoize(x: Any, key_parts: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
    """Return ``compute()``; the result is stored with the population of ``x``, if any.

    Args:
        x: a size.
        key_parts: parts of the key under which the result is stored, in addition to ``x``.
        compute: computes the result.
    """
    if not hasattr(x, "terms"):
        return compute()
    memo = x.columns.memo
    key = (*key_parts, size_key(x))
    if key not in memo:
        memo[key] = compute()
    return memo[key]


def size_key(x: Any) -> Any:
    """Return an identifier of a size within its population."""
    if hasattr(x, "terms"):
        return frozenset(x.terms.items())
    return id(x) if is_array(x) else x
