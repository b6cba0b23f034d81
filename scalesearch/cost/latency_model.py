"""Linear models that predict the latency of exported models.

`scalesearch latency calibrate` fits such a model and writes it to a JSON file.
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.errors import UserError
from scalesearch.files import read_json

HASHED_FIELD_NAMES = {"artifact": "artefact"}  # ids hash the names that fields had at first
MISCOVERAGE = 0.1  # expected share of measurements outside the prediction intervals


@dataclass(frozen=True)
class DecodingSetup:
    """Decoding settings of a measurement; lengths are tokens per sentence."""

    batch: int = 1
    beam: int = 1
    source: int = 30
    target: int = 30
    threads: int = 1

    def __str__(self) -> str:
        return (f"batch {self.batch}, beam {self.beam}, {self.source} source and {self.target} "
                f"target tokens, {self.threads} thread{'s' * (self.threads > 1)}")


@dataclass(frozen=True)
class LatencyModel:
    """A linear latency model: ms per sentence from features of the cost breakdown.

    Attributes:
        artifact: export format and quantization, such as ``ctranslate2-int8``.
        setup: decoding settings of the measurements.
        clock: ``wall`` or ``cpu``: the clock of the predicted median time.
        vocab: size of the vocabulary, or ``own``.
        features: feature names, see :mod:`scalesearch.cost.latency`.
        weights: ms per unit of each feature.
        without: leave-one-out weights: for each measured model, weights fitted without it.
        residuals: |measured / predicted - 1| of each model under its leave-one-out weights.
        rounds: measurement rounds.
        left_out: number of samples that the format does not support.
        candidates: id, parameters, times (ms per sentence) and leave-one-out prediction of each
            fitted model.
        others: the same, with 90 % intervals, for models that were measured but not fitted.
    """

    artifact: str
    setup: DecodingSetup
    clock: str
    vocab: int | str
    device: dict[str, Any]
    versions: dict[str, str]
    features: list[str]
    weights: list[float]
    without: list[list[float]]
    residuals: list[float]
    space: str = ""
    seed: int = 0
    rounds: int = 0
    left_out: int = 0
    candidates: list[dict[str, Any]] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)

    @property
    def mean_relative_error(self) -> float:
        """Mean leave-one-out error, relative to the prediction."""
        return float(np.mean(self.residuals))

    @property
    def id(self) -> str:
        """Hash of everything that affects a prediction."""
        hashed = {HASHED_FIELD_NAMES.get(name, name): value
                  for name, value in asdict(self).items()
                  if name not in ("candidates", "others", "space")}
        return blake2b(repr(hashed).encode(), digest_size=6).hexdigest()

    def __str__(self) -> str:
        return (f"{self.artifact}, {self.setup}, {self.clock} time, "
                f"{self.device.get('processor', 'unknown device')}; fit {self.id} of "
                f"{len(self.residuals)} artifacts, held-out error {self.mean_relative_error:.1%}")

    def predict(self, features: NDArray[np.float64]) -> Any:
        """Predict ms per sentence.

        Args:
            features: (…, n_features). The sum has a fixed order, so that a candidate gets bitwise
                the same prediction alone and in a population.

        Returns:
            (…) an array, or a float for one candidate.
        """
        total = sum(column * weight
                    for column, weight in zip(np.moveaxis(features, -1, 0), self.weights))
        return total if np.ndim(total) else float(total)

    def prediction_interval(self, features: NDArray[np.float64]) -> tuple[float, float]:
        """90 % prediction interval of one candidate by jackknife+ with relative residuals.

        The upper end is infinite if fewer than nine models were measured.
        Source: Barber et al. (2021), "Predictive inference with the jackknife+".
        """
        return jackknife_plus_interval(np.array(self.without) @ features, np.array(self.residuals))


def jackknife_plus_interval(leave_one_out_predictions: NDArray[np.float64],
                            residuals: NDArray[np.float64]) -> tuple[float, float]:
    """Jackknife+ interval from leave-one-out predictions and relative residuals.

    Both arrays have shape (n,).
    """
    n = len(residuals)
    low_rank = math.floor(MISCOVERAGE * (n + 1))
    high_rank = math.ceil((1 - MISCOVERAGE) * (n + 1))
    lower = np.sort(leave_one_out_predictions * (1 - residuals))
    upper = np.sort(leave_one_out_predictions * (1 + residuals))
    low = max(0.0, float(lower[low_rank - 1])) if low_rank else 0.0
    high = float(upper[high_rank - 1]) if high_rank <= n else math.inf
    return low, high


def load_latency_model(path: str) -> LatencyModel:
    """Load a latency model; an unchanged file is read once.

    Raises:
        UserError: the file cannot be read, is not a latency model, or has arrays of wrong lengths.
    """
    return _read_latency_model(path, os.stat(path).st_mtime_ns if os.path.exists(path) else 0)


@lru_cache
def _read_latency_model(path: str, modified: int) -> LatencyModel:
    """Read a latency model that was ``modified`` at this time, in nanoseconds."""
    hint = "`scalesearch latency calibrate` writes this file"
    try:
        model = read_json(Path(path), LatencyModel)
    except OSError as error:
        raise UserError(f"latency: {path}: {error.strerror}", help=hint,
                        code="no-latency-fit") from None
    except UserError as error:
        reason = error.message.removeprefix(f"{path}: ").partition(";")[0]
        raise UserError(f"latency: {path} is not a latency model: {reason}", help=hint,
                        code="no-latency-fit") from None
    n_features = len(model.features)
    lengths = {len(model.weights), *map(len, model.without)}
    if lengths != {n_features} or len(model.without) != len(model.residuals):
        raise UserError(f"{path}: {n_features} features, but weights for a different number; the "
                        "file was changed", code="file-damaged")
    return model
