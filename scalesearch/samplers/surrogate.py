"""A Gaussian process over sheets of answers and their exact costs: what an untrained candidate may score.

Distances are of answers, question by question, and of the logarithms of the costs, which the bill tells of every
candidate before it is trained. How much each of them counts is found by the marginal likelihood (Rasmussen & Williams
2006, section 5.4), one at a time over a few values: some hundred points at most, no gradient, no library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.space.syntax.parameters import Choice, Question

Array = NDArray[np.float64]
SCALES = (0.0, 0.1, 0.5, 2.0, 8.0)  # what a squared distance may be multiplied with; 0: does not matter
NOISES = (1e-4, 1e-2, 0.1, 0.4)  # share of the variance that nothing explains
SWEEPS = 1
ABSENT = 1.0  # distance of an answer from a question that was not asked


class Points:
    """Sheets as points, one coordinate an answer and a cost.

    Args:
        questions: of the space; several may have one name, where conditions decide.
        sheets: question to answer.
        costs: (sheets, costs) of the same sheets.
    """

    def __init__(self, questions: Sequence[tuple[str, Question]], sheets: Sequence[Mapping[str, Any]],
                 costs: Array) -> None:
        shapes: dict[str, Question] = {}
        for name, question in questions:
            shapes.setdefault(name, question)
        logs = np.log(np.maximum(costs, 1e-12))
        span = np.ptp(logs, axis=0) if len(logs) else np.ones(costs.shape[1])
        self.squares = np.stack([*(_apart(question, [sheet.get(name) for sheet in sheets])
                                   for name, question in shapes.items()),
                                 *(((line[:, None] - line[None]) / (width or 1.0)) ** 2 * 4
                                   for line, width in zip(logs.T, span))])


def _apart(question: Question, answers: Sequence[Any]) -> Array:
    """(sheets, sheets) squared distances of the answers to one question."""
    there = np.array([answer is not None for answer in answers])
    values = question.values()
    words = isinstance(question, Choice) and not all(_number(option) for option in question.options)
    if words:
        text = np.array([repr(answer) for answer in answers])
        square = (text[:, None] != text[None]).astype(float)
    else:
        ordered = sorted(values) if values else None
        line = np.array([_place(answer, ordered) if answer is not None else 0.0 for answer in answers])
        square = ((line[:, None] - line[None]) * 2) ** 2
    both = there[:, None] & there[None]
    square = np.where(both, square, ABSENT)
    return np.where(~there[:, None] & ~there[None], 0.0, square)


def _place(answer: Any, ordered: Sequence[Any] | None) -> float:
    """Where in 0 … 1 a number lies among those it may be."""
    if ordered is None:
        return math.log1p(abs(float(answer)))
    if len(ordered) < 2:
        return 0.0
    near = min(range(len(ordered)), key=lambda at: abs(float(ordered[at]) - float(answer)))
    return near / (len(ordered) - 1)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Surrogate:
    """Fitted to the first ``len(scores)`` of ``points``; predicts the others.

    Args:
        scores: of the points that are known, in any unit.
        doubt: of each, how much of the scores' variance its value may be off by, besides the common noise.
    """

    def __init__(self, points: Points, scores: Array, doubt: Array) -> None:
        self.known = len(scores)
        self.mean, self.unit = float(scores.mean()), float(scores.std()) or 1.0
        self.scores, self.doubt = (scores - self.mean) / self.unit, doubt
        self.squares = points.squares
        self.weights, self.noise = self._fit()

    def predict(self, which: slice | NDArray[np.intp], also: NDArray[np.intp] | None = None) -> tuple[Array, Array]:
        """Mean and standard deviation at ``which`` points.

        Args:
            also: points in training, believed to come to what is predicted of them; they lessen doubt around them.
        """
        inside = np.arange(self.known)
        scores, doubt = self.scores, self.doubt
        if also is not None and len(also):
            expected = (self.predict(also)[0] - self.mean) / self.unit
            inside = np.concatenate([inside, also])
            scores, doubt = np.concatenate([scores, expected]), np.concatenate([doubt, np.zeros(len(also))])
        near = kernel(self.weights, self.squares[:, which][:, :, inside])
        root = np.linalg.cholesky(self._covariance(self.weights, self.noise, inside, doubt))
        half = np.linalg.solve(root, near.T)
        mean = half.T @ np.linalg.solve(root, scores)
        spread = np.sqrt(np.maximum(1 - (half**2).sum(0), 1e-9))
        return mean * self.unit + self.mean, spread * self.unit

    def _fit(self) -> tuple[Array, float]:
        """Weights of the coordinates and the noise, by coordinate ascent of the likelihood."""
        known = np.arange(self.known)
        inside = self.squares[:, known][:, :, known]
        weights, noise = np.full(len(self.squares), 0.1), 1e-2
        best = self._likelihood(weights, noise, inside)
        alive = [at for at in range(len(weights)) if inside[at].any()]
        for _ in range(SWEEPS):
            for at in (*alive, None):
                for value in NOISES if at is None else SCALES:
                    tried = weights.copy()
                    if at is not None:
                        tried[at] = value
                    found = self._likelihood(tried, value if at is None else noise, inside)
                    if found > best:
                        best, weights = found, tried
                        noise = value if at is None else noise
        return weights, noise

    def _likelihood(self, weights: Array, noise: float, inside: Array) -> float:
        try:
            root = np.linalg.cholesky(kernel(weights, inside) + np.diag(noise + self.doubt))
        except np.linalg.LinAlgError:
            return -math.inf
        half = np.linalg.solve(root, self.scores)
        # Few points fit anything: a weight must earn its place.
        return float(-0.5 * half @ half - np.log(np.diag(root)).sum() - 0.1 * np.log1p(weights).sum())

    def _covariance(self, weights: Array, noise: float, inside: NDArray[np.intp], doubt: Array) -> Array:
        return kernel(weights, self.squares[:, inside][:, :, inside]) + np.diag(noise + doubt)


def kernel(weights: Array, squares: Array) -> Array:
    """Matérn 5/2 of the weighted squared distances (coordinates, n, m)."""
    far = np.sqrt(5 * np.maximum(np.tensordot(weights, squares, 1), 0))
    return np.asarray((1 + far + far**2 / 3) * np.exp(-far))
