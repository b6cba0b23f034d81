"""A latency model with made-up weights, for tests of predictions."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from scalesearch.cost.latency import FEATURE_NAMES
from scalesearch.cost.latency_model import DecodingSetup, LatencyModel
from scalesearch.files import write_json

WEIGHTS = {"constant": 0.5, "encoder.products": 0.01, "encoder.macs": 1e-8, "steps.products": 0.003,
           "steps.macs": 3e-8, "steps.attention": 2e-8, "output.macs": 1e-8}


def fit_of(artifact: str = "onnx-none", count: int = 20, **changes: object) -> LatencyModel:
    """A latency model whose leave-one-out weights are all equal."""
    weights = [WEIGHTS.get(name, 0.0) for name in FEATURE_NAMES]
    values = {"setup": DecodingSetup(), "clock": "wall", "vocab": "own",
              "device": {"processor": "A processor"}, "versions": {},
              "features": list(FEATURE_NAMES), "weights": weights, "without": [weights] * count,
              "residuals": np.linspace(0.01, 0.01 * count, count).tolist(), **changes}
    return LatencyModel(artifact, **values)  # type: ignore[arg-type]


def fit_file(folder: Path, artifact: str = "onnx-none", **changes: object) -> str:
    """The path of a file with the model of :func:`fit_of`."""
    write_json(folder / f"{artifact}.json", asdict(fit_of(artifact, **changes)))
    return str(folder / f"{artifact}.json")
