"""A predictor of an artifact's latency as `scalesearch latency calibrate` writes it: what it is of, and its weights."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.errors import UserError
from scalesearch.files import read_json

MISCOVERAGE = 0.1  # share that intervals miss


@dataclass(frozen=True)
class DecodingSetup:
    """How an artifact decodes while it is measured: tokens of sources and of translations, which all have as many."""

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
    """A predictor of latency, linear in features of the bill.

    Attributes:
        artifact: format and quantization.
        clock: ``wall`` or ``cpu``: which median it predicts.
        vocab: entries of the vocabularies, or ``own``.
        features: by name, see :mod:`scalesearch.cost.latency`.
        weights: ms a unit of each feature.
        without: the same, fitted without each of the measured in turn.
        residuals: |measured / predicted - 1| of each by the weights fitted without it.
        candidates: identity, parameters, times in ms a sentence, prediction without it.
        others: the same of artifacts that were measured with them and not fitted, and their 90 %
            intervals.
        left_out: draws that the format cannot hold.
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
        """Mean relative error on candidates that the weights were fitted without."""
        return float(np.mean(self.residuals))

    @property
    def id(self) -> str:
        """Hash of everything that decides a prediction."""
        said = {key: value
                for key, value in asdict(self).items()
                if key not in ("candidates", "others", "space")}
        return blake2b(repr(said).encode(), digest_size=6).hexdigest()

    def __str__(self) -> str:
        return (f"{self.artifact}, {self.setup}, {self.clock} time, "
                f"{self.device.get('processor', 'unknown device')}; fit {self.id} of "
                f"{len(self.residuals)} artifacts, held-out error {self.mean_relative_error:.1%}")

    def predict(self, features: NDArray[np.float64]) -> Any:
        """ms a sentence of features (…, features); the same to the bit for one candidate and for many."""
        total = sum(column * weight
                    for column, weight in zip(np.moveaxis(features, -1, 0), self.weights))
        return total if np.ndim(total) else float(total)

    def prediction_interval(self, features: NDArray[np.float64]) -> tuple[float, float]:
        """The 90 % interval of one candidate (jackknife+, Barber et al.

        2021, with relative residuals).

        Infinite above where fewer than nine were measured.
        """
        return jackknife_plus_interval(np.array(self.without) @ features, np.array(self.residuals))


def jackknife_plus_interval(leave_one_out_predictions: NDArray[np.float64],
                            residuals: NDArray[np.float64]) -> tuple[float, float]:
    """The interval from predictions that leave one out each, and the relative residual of that one."""
    count = len(residuals)
    low = math.floor(MISCOVERAGE * (count + 1))
    high = math.ceil((1 - MISCOVERAGE) * (count + 1))
    below = np.sort(leave_one_out_predictions * (1 - residuals))
    above = np.sort(leave_one_out_predictions * (1 + residuals))
    return max(0.0, float(below[low - 1])) if low else 0.0, float(
        above[high - 1]) if high <= count else math.inf


@lru_cache
def load_latency_model(path: str) -> LatencyModel:
    """Reads a fit. Raises UserError where there is none, or its numbers do not go together."""
    try:
        fit = read_json(Path(path), LatencyModel)
    except FileNotFoundError:
        raise UserError(f"latency: there is no file {path}",
                        help="`scalesearch latency calibrate` writes one", code="no-latency-fit") from None
    except UserError as error:
        raise UserError(f"latency: {path} is no fit: "
                        f"{error.message.removeprefix(f'{path}: ').partition(';')[0]}",
                        help="`scalesearch latency calibrate` writes one", code="no-latency-fit") from None
    size = len(fit.features)
    if {len(fit.weights),
        *map(len, fit.without)} != {size} or len(fit.without) != len(fit.residuals):
        raise UserError(f"{path}: {size} features, and weights of another number; the file was "
                        "changed", code="file-damaged")
    return fit
