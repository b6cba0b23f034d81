"""Calibration of a latency predictor: artifacts of architectures spread over a space, measured, and a fit of them.

Work in progress lies in ``FIT.json.work``: an artifact a folder, and ``times.jsonl``, a round a
line; a second run goes on there. The weights of a fit are no less than 0 and least in squares of
relative errors.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from scalesearch.cost import Protocol, evaluate_cost
from scalesearch.cost.latency import FEATURE_NAMES, compute_features
from scalesearch.cost.latency_model import DecodingSetup, LatencyModel
from scalesearch.data import Tokenizer
from scalesearch.data.split import BOS, EOS, PAD, UNK
from scalesearch.errors import UserError
from scalesearch.export.base import ExportFormat
from scalesearch.export.latency import (
    LatencyStatistics,
    WallAndCpuTime,
    describe_device,
    measure_rounds,
    pinned_threads,
)
from scalesearch.files import try_read_json, write_json
from scalesearch.nn import build_model
from scalesearch.space import Space
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.train.checkpoint import Checkpoint
from scalesearch.train.recipe import Recipe

SAMPLES_PER_MEASUREMENT = 20  # draws for each measurement, of which the farthest apart are measured
FloatArray = NDArray[np.float64]
CalibrationProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class CalibrationSettings:
    """What is calibrated: everything that a second run must share."""

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
    """An architecture to measure, its vocabulary's size and its features."""

    architecture: Any
    vocab_size: int
    features: FloatArray


class PlaceholderVocabulary:
    """A vocabulary without a tokenizer: what a format writes of one."""

    def __init__(self, size: int) -> None:
        self.vocab_size = size

    def pieces(self) -> list[tuple[str, float]]:
        """Entries and their scores."""
        special = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}
        return [(special.get(at, f"w{at}"), 0.0) for at in range(self.vocab_size)]


def calibrate_latency(space: Space, protocol: Protocol, format: ExportFormat,
                      settings: CalibrationSettings, out: Path,
                      progress: CalibrationProgress = lambda what, done, of: None) -> LatencyModel:
    """Measures artifacts of ``space`` and writes a fit of their latencies to ``out``.

    Raises:
        UserError: too few can be exported, or ``out`` was begun with other settings.
    """
    versions = format.package_versions()
    work = out.with_name(f"{out.name}.work")
    chosen, left_out = select_candidates(space, protocol, format, settings)
    _create_work_folder(work, settings)
    with pinned_threads(settings.decoding_setup.threads):
        decoders = {}
        for at, (name, one) in enumerate(chosen.items()):
            folder = work / name
            if not folder.is_dir():
                _write_artifact(one, format, settings, folder)
            decoders[name] = format.open_decoder(folder, settings.decoding_setup.threads)
            progress("artifacts", at + 1, len(chosen))
        times = _read_finished_rounds(work)
        words = {name: one.vocab_size for name, one in chosen.items()}
        for found in measure_rounds(decoders, words, settings.decoding_setup, settings.n_rounds,
                                    len(times)):
            times.append(found)
            with (work / "times.jsonl").open("a") as file:
                file.write(json.dumps(found) + "\n")
            progress("rounds", len(times), settings.n_rounds)
    fit = fit_latency_model(chosen, times, settings, versions, left_out)
    write_json(out, asdict(fit))
    shutil.rmtree(work)
    return fit


def _create_work_folder(work: Path, job: CalibrationSettings) -> None:
    said = json.loads(json.dumps(asdict(job)))
    before = try_read_json(work / "job.json", dict[str, Any])
    if before is not None and before != said:
        differ = ", ".join(key for key in said if before.get(key) != said[key])
        raise UserError(f"{work}: begun with another {differ}; give the same settings to go on, or "
                        "remove it", code="other-calibration")
    work.mkdir(parents=True, exist_ok=True)
    write_json(work / "job.json", said)


def _read_finished_rounds(work: Path) -> list[dict[str, WallAndCpuTime]]:
    """Rounds that were measured before; one that was cut off does not count."""
    file = work / "times.jsonl"
    whole = ([line for line in file.read_text().splitlines(True) if line.endswith("\n")]
             if file.exists() else [])
    if file.exists():
        file.write_text("".join(whole))
    return [json.loads(line) for line in whole]


def _write_artifact(candidate: CalibrationCandidate, format: ExportFormat, job: CalibrationSettings,
                    folder: Path) -> None:
    """An artifact of random weights; the folder is there once it is whole."""
    model = build_model(candidate.architecture.block, vocab=candidate.vocab_size).eval()
    part = folder.with_name(f".{folder.name}")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    trained = Checkpoint(model, cast(Tokenizer, PlaceholderVocabulary(candidate.vocab_size)),
                         candidate.architecture, False,
                         max(job.decoding_setup.source, job.decoding_setup.target), Recipe(steps=1),
                         "translation")
    format.write(trained, part, job.quantization)
    part.rename(folder)


# -- which architectures


def select_candidates(space: Space, protocol: Protocol, format: ExportFormat,
                      job: CalibrationSettings) -> tuple[dict[str, CalibrationCandidate], int]:
    """Architectures by id, those to be fitted first, and how many draws were left out.

    They are far from each other in the logarithms of their features; those that are held out are
    drawn from the rest.
    """
    count = job.n_fitted + job.n_held_out
    rng = random.Random(job.seed)
    found = dict[str, CalibrationCandidate]()
    left_out = 0
    for _ in range(SAMPLES_PER_MEASUREMENT * count):
        one = _sample_candidate(space, protocol, job, rng)
        if one is None:
            continue
        if format.unsupported_reasons(one.architecture.block):
            left_out += 1
        else:
            found.setdefault(one.architecture.id, one)
    if len(found) < count:
        raise UserError(f"{job.space}: {len(found)} of {SAMPLES_PER_MEASUREMENT * count:,} random "
                        "candidates differ, can be built, meet the space's constraints and are "
                        f"taken by {format.name}; {count} are to be measured",
                        help="measure fewer, or widen the space", code="too-few-candidates")
    names = list(found)
    logs = np.log1p(np.stack([one.features for one in found.values()]))
    scale = logs.std(0)
    spread = farthest_points(logs[:, scale > 0] / scale[scale > 0], job.n_fitted)
    others = rng.sample(sorted(set(range(len(names))) - set(spread)), job.n_held_out)
    return {names[at]: found[names[at]] for at in (*spread, *others)}, left_out


def _sample_candidate(space: Space, protocol: Protocol, job: CalibrationSettings,
                      rng: random.Random) -> CalibrationCandidate | None:
    """A random candidate that meets the space's constraints; its features are 0 where its format refuses it."""
    try:
        architecture = space.architecture(space.sample(rng))
        mine = protocol.for_candidates(architecture.config).with_vocab(architecture.vocab)
        bill = evaluate_cost(architecture.block, mine)
    except UserError:
        return None
    if not all(one.is_satisfied(lambda name: bill[name] if name in COST_NAMES
                                else architecture.config[name]) for one in space.constraints):
        return None
    try:
        found = compute_features(architecture.block, f"{job.format}-{job.quantization}",
                                 job.decoding_setup, mine)
    except UserError:
        found = {}
    return CalibrationCandidate(architecture, mine.vocab_size,
                                np.array([found.get(name, 0) for name in FEATURE_NAMES], float))


def farthest_points(points: FloatArray, count: int) -> list[int]:
    """Indices of ``count`` points, each the farthest from those before; the first is nearest to the middle."""
    chosen = [int(np.linalg.norm(points - points.mean(0), axis=1).argmin())]
    distance = np.full(len(points), np.inf)
    while len(chosen) < count:
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
        chosen.append(int(distance.argmax()))
    return chosen


# -- the fit


def fit_latency_model(candidates: Mapping[str, CalibrationCandidate],
                      times: list[dict[str, WallAndCpuTime]], job: CalibrationSettings,
                      versions: dict[str, str], n_rejected: int) -> LatencyModel:
    """The fit of what was measured."""
    found = {name: LatencyStatistics.from_times([tuple(one[name]) for one in times]) for name in candidates}  # type: ignore[misc]
    wanted = np.array([one.cpu if job.clock == "cpu" else one.p50 for one in found.values()])
    values = np.stack([one.features for one in candidates.values()])
    count = job.n_fitted
    weights, without, predicted = leave_one_out_fit(values[:count], wanted[:count])
    rows = [{"id": name, "config": dict(one.architecture.config), **asdict(found[name]),
             "features": one.features.tolist()} for name, one in candidates.items()]
    fit = LatencyModel(f"{job.format}-{job.quantization}", job.decoding_setup, job.clock,
                       job.protocol["vocab"], describe_device(job.decoding_setup.threads), versions,
                       list(FEATURE_NAMES), weights.tolist(), without.tolist(),
                       np.abs(wanted[:count] / predicted - 1).tolist(), job.space, job.seed,
                       job.n_rounds, n_rejected)
    fit.candidates.extend(row | {"held_out": float(said)} for row, said in zip(rows, predicted))
    for row, value in zip(rows[count:], values[count:]):
        low, high = fit.prediction_interval(value)
        fit.others.append(row | {"held_out": fit.predict(value), "low": low, "high": high})
    return fit


def leave_one_out_fit(
        values: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights (features,), those without each row (rows, features), and predictions of each row by the latter."""
    rows = np.arange(len(values))
    without = np.stack([nonnegative_least_squares(values[rows != at], targets[rows != at])
                        for at in rows])
    predicted = np.maximum((values * without).sum(1), np.finfo(float).tiny)
    return nonnegative_least_squares(values, targets), without, predicted


def nonnegative_least_squares(values: FloatArray, targets: FloatArray) -> FloatArray:
    """Non-negative weights of least relative squared error."""
    from scipy.optimize import nnls

    relative = values / targets[:, None]
    scale = np.where((most := relative.max(0)) > 0, most, 1)
    found: FloatArray = nnls(relative / scale, np.ones(len(targets)))[0] / scale
    return found


def summarize_fit(fit: LatencyModel) -> Iterator[str]:
    """What was measured and how well it is predicted, for people."""
    times = [one["p50"] for one in fit.candidates]
    yield str(fit)
    yield (f"p50 {min(times):.3g} to {max(times):.3g} ms a sentence; {fit.rounds} rounds, "
           f"{sum(one['is_unstable'] for one in fit.candidates)} of {len(times)} unsteady; "
           f"{fit.left_out} draws left out, which the format cannot hold")
    if fit.others:
        wanted, said, low, high = (
            np.array([one[key] for one in fit.others])
            for key in ("cpu" if fit.clock == "cpu" else "p50", "held_out", "low", "high"))
        errors = np.abs(said / wanted - 1)
        inside = (low <= wanted) & (wanted <= high)
        yield (f"{len(wanted)} others, not fitted: error {errors.mean():.1%} in the mean, "
               f"{np.median(errors):.1%} in the median; {inside.mean():.0%} lie in their 90 % "
               "intervals")
    for name, weight in zip(fit.features, fit.weights):
        if weight:
            yield f"  {name}: {weight:.3g} ms each"
