"""Calibration of a latency model: measurement of architectures, and a fit.

Unfinished work is kept in ``FIT.json.work``: one folder per artifact, and ``times.jsonl`` with one
round per line. Another run resumes there. The weights of a fit minimize the sum of squared relative
errors and are not negative.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from scalesearch.blocks.core import BOS, EOS, PAD, UNK
from scalesearch.cost import Protocol, evaluate_cost
from scalesearch.cost.latency import FEATURE_NAMES, compute_features
from scalesearch.cost.latency_model import DecodingSetup, LatencyModel
from scalesearch.data import DataSpec, Tokenizer
from scalesearch.errors import UserError, option
from scalesearch.export.base import ExportFormat
from scalesearch.export.latency import (
    LatencyStatistics,
    WallAndCpuTime,
    check_decoding,
    describe_device,
    measure_rounds,
    pinned_threads,
)
from scalesearch.files import read_regular, try_read_json, write_atomic, write_json
from scalesearch.nn import build_model
from scalesearch.pareto import euclidean_distances, farthest_points
from scalesearch.spaces import Space
from scalesearch.spaces.schema.cost_names import COST_NAMES
from scalesearch.terminal import format_count
from scalesearch.training.checkpoint import Checkpoint
from scalesearch.training.recipe import Recipe

MIN_MEASUREMENTS = 9  # of a fit with finite prediction intervals
MAX_RELATIVE_ERROR = 0.1  # of a fit that needs no advice
SAMPLES_PER_MEASUREMENT = 20  # random candidates per measured one
FloatArray = NDArray[np.float64]
CalibrationProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class CalibrationSettings:
    """Settings of a calibration; a run resumes another one only if all are equal."""

    space: str
    space_hash: str
    format: str
    quantization: str
    n_fitted: int
    n_held_out: int
    n_rounds: int
    seed: int
    clock: str
    decoding_setup: DecodingSetup
    protocol: Mapping[str, Any]


@dataclass(frozen=True)
class CalibrationCandidate:
    """An architecture to measure, its vocabulary size and its features (n_features,)."""

    architecture: Any
    vocab_size: int
    features: FloatArray


class PlaceholderVocabulary:
    """A vocabulary without a tokenizer, for formats that write its pieces.

    ``target`` is that of the target.
    """

    def __init__(self, size: int, target_size: int | None = None) -> None:
        self.vocab_size = size
        self.is_pair = target_size is not None
        self.target = self if target_size is None else PlaceholderVocabulary(target_size)

    def pieces(self) -> list[tuple[str, float]]:
        """List the pieces and their scores."""
        special = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}
        return [(special.get(id, f"w{id}"), 0.0) for id in range(self.vocab_size)]


def calibrate_latency(space: Space, protocol: Protocol, format: ExportFormat,
                      settings: CalibrationSettings, out: Path,
                      progress: CalibrationProgress = lambda what, done, of: None) -> LatencyModel:
    """Measure exported candidates of ``space`` and write a latency model to ``out``.

    Raises:
        UserError: too few candidates can be exported, or ``out`` was started with other settings.
    """
    versions = format.package_versions()
    work = out.with_name(f"{out.name}.work")
    candidates, n_rejected = select_candidates(space, protocol, format, settings)
    content = json.loads(json.dumps(asdict(settings)))
    existing = try_read_json(work / "job.json", dict[str, Any])
    if existing is not None and existing != content:
        different = ", ".join(key for key in content if existing.get(key) != content[key])
        raise UserError(f"{work}: started with another {different}; use the same settings to "
                        "resume, or remove the folder", code="other-calibration")
    work.mkdir(parents=True, exist_ok=True)
    write_json(work / "job.json", content)
    with pinned_threads(settings.decoding_setup.threads):
        decoders = {}
        for index, (name, candidate) in enumerate(candidates.items()):
            folder = work / name
            if not folder.is_dir():
                _write_artifact(candidate, format, settings, folder)
            decoders[name] = format.open_decoder(folder, settings.decoding_setup.threads)
            progress("artifacts", index + 1, len(candidates))
        # The rounds of an earlier run, up to a line that was cut off or damaged.
        file = work / "times.jsonl"
        times: list[dict[str, WallAndCpuTime]] = []
        lines = read_regular(file).splitlines(True) if file.exists() else []
        for line in lines:
            try:
                times.append(msgspec.json.decode(line, type=dict[str, WallAndCpuTime]))
            except ValueError:
                break
        write_atomic(file, lambda handle: handle.write(b"".join(lines[: len(times)])))
        vocab_sizes = {name: candidate.vocab_size for name, candidate in candidates.items()}
        for round_times in measure_rounds(decoders, vocab_sizes, settings.decoding_setup,
                                          settings.n_rounds, len(times)):
            times.append(round_times)
            with file.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(round_times) + "\n")
            progress("rounds", len(times), settings.n_rounds)
    fit = fit_latency_model(candidates, times, settings, versions, n_rejected)
    write_json(out, asdict(fit))
    shutil.rmtree(work)
    return fit


def _write_artifact(candidate: CalibrationCandidate, format: ExportFormat,
                    settings: CalibrationSettings, folder: Path) -> None:
    """Export random weights to ``folder``, which appears only when it is complete."""
    model = build_model(candidate.architecture.block, vocab=candidate.vocab_size).eval()
    part = folder.with_name(f".{folder.name}")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    setup = settings.decoding_setup
    data = DataSpec(builtin="grammar", max_length=max(setup.source, setup.target))
    vocabulary = PlaceholderVocabulary(candidate.vocab_size, candidate.architecture.vocab_sizes[1])
    trained = Checkpoint(model, cast(Tokenizer, vocabulary), candidate.architecture, data,
                         Recipe(steps=1))
    check_decoding(settings.space, trained, setup)
    format.write(trained, part, settings.quantization)
    part.rename(folder)


# -- selection of architectures


def select_candidates(space: Space, protocol: Protocol, format: ExportFormat,
                      settings: CalibrationSettings) -> tuple[dict[str, CalibrationCandidate], int]:
    """Select architectures by id, and count the candidates that are not supported.

    The first ``n_fitted`` are for the fit; they are far from each other in the logarithms of their
    features. The held-out architectures are sampled from the others.
    """
    count = settings.n_fitted + settings.n_held_out
    rng = random.Random(settings.seed)
    candidates = dict[str, CalibrationCandidate]()
    rejections: list[str] = []
    for _ in range(SAMPLES_PER_MEASUREMENT * count):
        candidate = _sample_candidate(space, protocol, settings, rng)
        if candidate is None:
            continue
        if reasons := format.unsupported_reasons(candidate.architecture.block):
            rejections.append(reasons[0])
        else:
            candidates.setdefault(candidate.architecture.id, candidate)
    if len(candidates) < count:
        fixes = ["widen the space"]
        if len(candidates) >= MIN_MEASUREMENTS:
            fixes.insert(0, f"set smaller {option('measurements')} and {option('held-out')}")
        if rejections:
            fixes.append(f"choose another format ({option('to')}), because {format.name} does not "
                         f"support {len(rejections)} candidates; the first: {rejections[0]}")
        raise UserError(f"{settings.space}: {len(candidates)} of "
                        f"{SAMPLES_PER_MEASUREMENT * count:,} random candidates are distinct, can "
                        "be built, meet the constraints of the space and are supported by "
                        f"{format.name}; {count} are required",
                        help=", or ".join(fixes), code="too-few-candidates")
    names = list(candidates)
    logs = np.log1p(np.stack([candidate.features for candidate in candidates.values()]))
    scale = logs.std(0)
    points = logs[:, scale > 0] / scale[scale > 0]
    central = int(np.linalg.norm(points - points.mean(0), axis=1).argmin())
    fitted = [central, *farthest_points(euclidean_distances(points), [central],
                                        range(len(names)), settings.n_fitted - 1)]
    held_out = rng.sample(sorted(set(range(len(names))) - set(fitted)), settings.n_held_out)
    return {names[index]: candidates[names[index]] for index in (*fitted, *held_out)}, len(
        rejections)


def _sample_candidate(space: Space, protocol: Protocol, settings: CalibrationSettings,
                      rng: random.Random) -> CalibrationCandidate | None:
    """Sample a candidate, or return None if it violates a constraint of the space.

    Features are 0 if the format does not support the candidate.
    """
    try:
        architecture = space.architecture(space.sample(rng))
        own_protocol = protocol.for_candidates(architecture.config).with_vocab(architecture.vocab)
        costs = evaluate_cost(architecture.block, own_protocol)
    except UserError:
        return None

    def lookup(name: str) -> Any:
        return costs[name] if name in COST_NAMES else architecture.config[name]

    if not all(constraint.is_satisfied(lookup) for constraint in space.constraints):
        return None
    try:
        artifact = f"{settings.format}-{settings.quantization}"
        features = compute_features(architecture.block, artifact, settings.decoding_setup,
                                    own_protocol)
    except UserError:
        features = {}
    return CalibrationCandidate(architecture, own_protocol.vocab_size,
                                np.array([features.get(name, 0) for name in FEATURE_NAMES], float))


# -- the fit


def fit_latency_model(candidates: Mapping[str, CalibrationCandidate],
                      times: list[dict[str, WallAndCpuTime]], settings: CalibrationSettings,
                      versions: dict[str, str], n_rejected: int) -> LatencyModel:
    """Fit a latency model to measured times; predict the held-out candidates with it."""
    latencies = {name: LatencyStatistics.from_times([row[name] for row in times], settings.clock)
                 for name in candidates}
    targets = np.array([latency.cpu if settings.clock == "cpu" else latency.p50
                        for latency in latencies.values()])
    features = np.stack([candidate.features for candidate in candidates.values()])
    count = settings.n_fitted
    weights, without, predicted = leave_one_out_fit(features[:count], targets[:count])
    rows = [{"id": name, "config": dict(candidate.architecture.config), **asdict(latencies[name]),
             "features": candidate.features.tolist()} for name, candidate in candidates.items()]
    fit = LatencyModel(f"{settings.format}-{settings.quantization}", settings.decoding_setup,
                       settings.clock, settings.protocol["vocab"],
                       describe_device(settings.decoding_setup.threads), versions,
                       list(FEATURE_NAMES), weights.tolist(), without.tolist(),
                       np.abs(targets[:count] / predicted - 1).tolist(), settings.space,
                       settings.seed, settings.n_rounds, n_rejected)
    fit.candidates.extend(row | {"held_out": float(prediction)}
                          for row, prediction in zip(rows, predicted))
    for row, row_features in zip(rows[count:], features[count:]):
        low, high = fit.prediction_interval(row_features)
        fit.others.append(row | {"held_out": fit.predict(row_features), "low": low, "high": high})
    return fit


def leave_one_out_fit(
        features: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit to all rows, and to all but one.

    Args:
        features: (rows, features).
        targets: (rows,), measured times.

    Returns:
        Weights (features,), leave-one-out weights (rows, features), and the prediction of each row
        by its leave-one-out weights (rows,).
    """
    rows = np.arange(len(features))
    without = np.stack([nonnegative_least_squares(features[rows != row], targets[rows != row])
                        for row in rows])
    predicted = np.maximum((features * without).sum(1), np.finfo(float).tiny)
    return nonnegative_least_squares(features, targets), without, predicted


def nonnegative_least_squares(features: FloatArray, targets: FloatArray) -> FloatArray:
    """Find non-negative weights that minimize the sum of squared relative errors."""
    from scipy.optimize import nnls

    relative = features / targets[:, None]
    largest = relative.max(0)
    scale = np.where(largest > 0, largest, 1)
    weights: FloatArray = nnls(relative / scale, np.ones(len(targets)))[0] / scale
    return weights


def summarize_fit(fit: LatencyModel) -> Iterator[str]:
    """Describe the measured times and the prediction error, line by line."""
    key = "cpu" if fit.clock == "cpu" else "p50"
    times = [candidate[key] for candidate in fit.candidates]
    n_unstable = sum(candidate["is_unstable"] for candidate in fit.candidates)
    yield str(fit)
    yield (f"{'median CPU time' if key == 'cpu' else key} {min(times):.3g} to {max(times):.3g} ms "
           f"per sentence; {fit.rounds} rounds; "
           f"{n_unstable} of {len(times)} unstable; "
           f"{format_count(fit.left_out, 'sample')} left out because the "
           "format does not support them")
    if fit.mean_relative_error > MAX_RELATIVE_ERROR:
        yield (f"The error is above {MAX_RELATIVE_ERROR:.0%}. Measure on an idle machine, with "
               "more --rounds or --measurements, or with --clock cpu")
    if fit.others:
        measured, predicted, low, high = (
            np.array([candidate[name] for candidate in fit.others])
            for name in (key, "held_out", "low", "high"))
        errors = 100 * np.abs(predicted / measured - 1)
        inside = 100 * ((low <= measured) & (measured <= high))
        yield (f"{len(measured)} held-out models: mean error {errors.mean():.1f} %, median "
               f"{np.median(errors):.1f} %; {inside.mean():.0f} % are within their 90 % intervals. "
               "The error of the fit leaves out one fitted model at a time")
    for name, weight in zip(fit.features, fit.weights):
        if weight:
            yield f"  {name}: {weight:.3g} ms each"
