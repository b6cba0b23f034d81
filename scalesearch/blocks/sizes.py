"""Sizes that may be ints or int64 arrays: the few places where a block or a check has to look at one.

A population of candidates is described by arrays in place of ints. Code that must decide something asks
:func:`truth`; where the candidates disagree, :class:`Split` says which of them to treat apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

MOST_SPREAD = 1 << 20  # numbers that differ by less are looked up in a table, not sorted


class Split(Exception):
    """The candidates of a population differ in what a decision depends on.

    Attributes:
        labels: an int for each candidate; those with one label agree.
    """

    def __init__(self, labels: Any) -> None:
        super().__init__("the population has to be split")
        self.labels = labels


def many(x: Any) -> bool:
    """Whether ``x`` is an array, one number for each candidate."""
    return hasattr(x, "dtype")


def plain(x: Any) -> Any:
    """A size as a number or an array: what a polynomial stands for."""
    return x.values() if hasattr(x, "terms") else x


def truth(condition: Any) -> bool:
    """``condition`` as a bool. Raises Split where it holds for some candidates only."""
    if not many(condition):
        return bool(condition)
    import numpy as np

    condition = np.asarray(condition)
    if condition.all():
        return True
    if not condition.any():
        return False
    raise Split(condition.astype("int64"))


def fixed(x: Any) -> Any:
    """``x`` as one number. Raises Split where candidates differ in it."""
    if not many(x):
        return x
    import numpy as np

    x = plain(x)
    if (x == x[0]).all():
        return x[0].item()

    raise Split(np.unique(x, return_inverse=True)[1])


def given(x: Any) -> bool:
    """Whether a size that may be missing is there: anything but the int 0."""
    return many(x) or x != 0


def least(x: Any, y: Any) -> Any:
    """The smaller of two, candidate by candidate."""
    if many(x) or many(y):
        import numpy as np

        return np.minimum(plain(x), plain(y))
    return min(x, y)


def most(x: Any, y: Any) -> Any:
    """The larger of two, candidate by candidate."""
    if many(x) or many(y):
        import numpy as np

        return np.maximum(plain(x), plain(y))
    return max(x, y)


def either(condition: Any, then: Any, other: Any) -> Any:
    """``then`` where ``condition`` holds, ``other`` elsewhere."""
    if many(condition):
        import numpy as np

        return np.where(condition, plain(then), plain(other))
    return then if condition else other


def by_value(x: Any, function: Callable[[int], Any]) -> Any:
    """``function`` of each number in ``x``, computed once for each that occurs; numbers or tuples of numbers."""
    if not many(x):
        return function(x)
    import numpy as np

    x = plain(x)
    low, high = int(x.min()), int(x.max())
    if high - low > MOST_SPREAD:
        values, where = np.unique(x, return_inverse=True)
        found = np.array([function(value.item()) for value in values])[where]
    else:
        there = np.flatnonzero(np.bincount(x - low)) + low
        first = np.array([function(value.item()) for value in there])
        table = np.empty((high - low + 1, *first.shape[1:]), first.dtype)
        table[there - low] = first
        found = table[x - low]
    return tuple(np.ascontiguousarray(column) for column in found.T) if found.ndim == 2 else found


def root(x: Any) -> Any:
    """The square root, correctly rounded for numbers and arrays alike."""
    if many(x):
        import numpy as np

        return np.sqrt(plain(x))
    return math.sqrt(x)


def remembered(x: Any, what: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
    """``compute()``, kept with the population that ``x`` belongs to where it has one."""
    if not hasattr(x, "terms"):
        return compute()
    known, key = x.columns.known, (*what, key_of(x))
    if key not in known:
        known[key] = compute()
    return known[key]


def key_of(x: Any) -> Any:
    """What identifies a size within its population."""
    return frozenset(x.terms.items()) if hasattr(x, "terms") else id(x) if many(x) else x
