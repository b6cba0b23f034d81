"""Functions of sizes that may be ints or int64 arrays.

A population of candidates is described by arrays in place of ints. Code that must decide something asks
:func:`decide`; where the candidates disagree, :class:`PopulationSplitError` says which of them to treat apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeGuard

MAX_LOOKUP_RANGE = 1 << 20  # numbers that differ by less are looked up in a table, not sorted


class PopulationSplitError(Exception):
    """Raised where a decision differs between the candidates of a population.

    Attributes:
        labels: an int for each candidate; those with one label agree.
    """

    def __init__(self, labels: Any) -> None:
        super().__init__("the population has to be split")
        self.labels = labels


def is_number(x: Any) -> TypeGuard[int | float]:
    """Whether ``x`` is a whole or a real number; yes and no are none."""
    return isinstance(x, int | float) and not isinstance(x, bool)


def is_array(x: Any) -> bool:
    """True if ``x`` is an array, one number for each candidate."""
    return hasattr(x, "dtype")


def evaluate_size(x: Any) -> Any:
    """A size as a number or an array: the values of a polynomial."""
    return x.values() if hasattr(x, "terms") else x


def decide(condition: Any) -> bool:
    """``condition`` as a bool. Raises Split where it holds for some candidates only."""
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
    """``x`` as one number. Raises Split where candidates differ in it."""
    if not is_array(x):
        return x
    import numpy as np

    x = evaluate_size(x)
    if (x == x[0]).all():
        return x[0].item()

    raise PopulationSplitError(np.unique(x, return_inverse=True)[1])


def is_set(x: Any) -> bool:
    """True if an optional size is there: anything but the int 0."""
    return is_array(x) or x != 0


def minimum(x: Any, y: Any) -> Any:
    """The smaller of two, candidate by candidate."""
    if is_array(x) or is_array(y):
        import numpy as np

        return np.minimum(evaluate_size(x), evaluate_size(y))
    return min(x, y)


def maximum(x: Any, y: Any) -> Any:
    """The larger of two, candidate by candidate."""
    if is_array(x) or is_array(y):
        import numpy as np

        return np.maximum(evaluate_size(x), evaluate_size(y))
    return max(x, y)


def select_where(condition: Any, then: Any, other: Any) -> Any:
    """``then`` where ``condition`` holds, ``other`` elsewhere."""
    if is_array(condition):
        import numpy as np

        return np.where(condition, evaluate_size(then), evaluate_size(other))
    return then if condition else other


def map_values(x: Any, function: Callable[[int], Any]) -> Any:
    """``function`` of each number in ``x``, once for equal ones; of numbers or tuples."""
    if not is_array(x):
        return function(x)
    import numpy as np

    x = evaluate_size(x)
    low = int(x.min())
    high = int(x.max())
    if high - low > MAX_LOOKUP_RANGE:
        values, where = np.unique(x, return_inverse=True)
        result = np.array([function(value.item()) for value in values])[where]
    else:
        there = np.flatnonzero(np.bincount(x - low)) + low
        first = np.array([function(value.item()) for value in there])
        table = np.empty((high - low + 1, *first.shape[1:]), first.dtype)
        table[there - low] = first
        result = table[x - low]
    return tuple(np.ascontiguousarray(column)
                 for column in result.T) if result.ndim == 2 else result


def square_root(x: Any) -> Any:
    """The square root, correctly rounded for numbers and arrays alike."""
    if is_array(x):
        import numpy as np

        return np.sqrt(evaluate_size(x))
    return math.sqrt(x)


def memoize(x: Any, key_parts: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
    """``compute()``, memoised with the population of ``x`` if it has one."""
    if not hasattr(x, "terms"):
        return compute()
    known = x.columns.memo
    key = (*key_parts, size_key(x))
    if key not in known:
        known[key] = compute()
    return known[key]


def size_key(x: Any) -> Any:
    """An identifier of a size within its population."""
    return frozenset(x.terms.items()) if hasattr(x, "terms") else id(x) if is_array(x) else x
