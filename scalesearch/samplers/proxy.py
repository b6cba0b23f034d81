"""Proxy of the score as a further column of the surrogates of ``bayes``.

A proxy is a number per candidate that is known before training: a parameter, a cost, or a column of
a CSV file. It is used only if it reduces the leave-one-out error of the surrogate of final values
(see :meth:`.Surrogate.leave_one_out_residuals`), over the trials so far.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.errors import UserError

if TYPE_CHECKING:  # they import Optuna
    from scalesearch.samplers.bayes.coordinates import Coordinates

Array = NDArray[np.float64]
LOG_RANGE = 10.0  # ratio of the extremes of a proxy above which it enters as its logarithm
MIN_TESTED = 8  # trials with a score and the proxy, before the errors are compared
MIN_KNOWN_SHARE = 0.5  # of the new candidates, which must have the proxy


def scale_proxy(values: Array) -> Array:
    """Return the logarithm of positive values that span more than a factor of ten."""
    is_wide = values.min() > 0 and values.max() > LOG_RANGE * values.min()
    return np.log(values) if is_wide else values


@dataclass(frozen=True)
class ProxyTest:
    """Comparison of the surrogate with and without a proxy.

    Attributes:
        name: name of the proxy.
        n_trials: number of trials with a score that have it.
        known_share: share of the new candidates that have it.
        error, error_without: mean absolute leave-one-out errors, in standard deviations of the
            score; NaN before there are enough trials.
    """

    name: str
    n_trials: int
    known_share: float
    error: float = math.nan
    error_without: float = math.nan

    @property
    def is_used(self) -> bool:
        """Whether the surrogates use the proxy."""
        return self.known_share >= MIN_KNOWN_SHARE and self.error < self.error_without

    def __str__(self) -> str:
        use = "is used" if self.is_used else "is not used"
        if self.known_share < MIN_KNOWN_SHARE:
            return (f"proxy {self.name} {use}: {self.known_share:.0%} of the new candidates have "
                    "it")
        if math.isnan(self.error):
            return (f"proxy {self.name} {use}: {self.n_trials} trials with a score have it, and "
                    f"{MIN_TESTED} are needed")
        return (f"proxy {self.name} {use}: leave-one-out error {self.error:.3g} with it and "
                f"{self.error_without:.3g} without it (standard deviations of the score, "
                f"{self.n_trials} trials)")


class ScoreProxy:
    """Proxy of candidates.

    Args:
        name: name for messages.
        evaluate: function from Optuna's parameters to the proxy; None if it is unknown.
    """

    def __init__(self, name: str, evaluate: Callable[[Mapping[str, Any]], float | None]) -> None:
        self.name = name
        self._evaluate = evaluate
        self._values: dict[str, float] = {}

    def values(self, candidates: Iterable[Mapping[str, Any]]) -> Array:
        """Return the proxy of each candidate with these parameters; NaN if unknown."""
        from scalesearch.samplers.candidate import candidate_key

        values = []
        for params in candidates:
            key = candidate_key(params)
            if key not in self._values:
                try:
                    value = self._evaluate(params)
                except KeyError:  # from outside the space
                    value = None
                self._values[key] = math.nan if value is None else float(value)
            values.append(self._values[key])
        return np.array(values, float)

    def add_to(self, coordinates: Coordinates, values: Array, scores: Array,
               n_new: int) -> tuple[ProxyTest, Coordinates]:
        """Test the proxy, and return the coordinates of the surrogates.

        Args:
            coordinates: of n points, the trials first.
            values: (n,) proxies; NaN if unknown. Unknown ones are predicted from the coordinates.
            scores: (trials, scores) final values; NaN if a trial has none.
            n_new: number of new candidates, the last points.
        """
        from scalesearch.samplers.bayes.surrogate import Surrogate

        is_known = np.isfinite(values)
        known_share = float(is_known[len(values) - n_new:].mean()) if n_new else 1.0
        rows = np.flatnonzero(is_known[:len(scores)] & np.isfinite(scores).all(1))
        if len(rows) < MIN_TESTED or known_share < MIN_KNOWN_SHARE:
            return ProxyTest(self.name, len(rows), known_share), coordinates
        values = values.copy()
        values[is_known] = scale_proxy(values[is_known])
        if not is_known.all():
            surrogate = Surrogate(coordinates[is_known], values[is_known])
            values[~is_known] = surrogate.predict(coordinates[~is_known])[0]
        extended = coordinates.with_proxy(values)
        errors = [np.mean([np.abs(Surrogate(points[rows], column).leave_one_out_residuals()).mean()
                           / (column.std() or 1.0) for column in scores[rows].T])
                  for points in (extended, coordinates)]
        test = ProxyTest(self.name, len(rows), known_share, float(errors[0]), float(errors[1]))
        return test, extended if test.is_used else coordinates


class ProxyTable:
    """CSV table with columns of parameters, and the proxy in the last column.

    Columns of parameters may have the prefix ``param.``, as in the tables of a study.

    Raises:
        UserError: the file cannot be read, a proxy is not a number, or no column is a parameter.
    """

    def __init__(self, file: Path, parameters: Sequence[str]) -> None:
        try:
            with file.open(newline="") as lines:
                header, *rows = csv.reader(lines)
            self._values = {tuple(map(_to_key, row[:-1])): float(row[-1]) for row in rows if row}
        except (OSError, ValueError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{file}: cannot be read as CSV: {reason}",
                            code="cannot-read") from None
        self._paths = [name.removeprefix("param.") for name in header[:-1]]
        unknown = [name for name in self._paths if name not in parameters]
        if unknown or not self._paths:
            raise UserError(f"{file}: expected columns of parameters of the space, and the proxy "
                            f"in the last one; not parameters: {', '.join(unknown) or 'all'}",
                            key="sampler.proxy", code="unknown-key")

    def __call__(self, values: Mapping[str, Any]) -> float | None:
        """Return the proxy of a configuration; None if the table does not contain it."""
        return self._values.get(tuple(_to_key(values.get(path)) for path in self._paths))


def _to_key(value: Any) -> float | str:
    """Return a number, or a text, empty for None; tables contain 64 as ``64`` or ``64.0``."""
    try:
        return float(str(value))
    except ValueError:
        return "" if value is None else str(value)
