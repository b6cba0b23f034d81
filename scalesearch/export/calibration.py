"""Calibration of a latency predictor: artefacts of architectures spread over a space, measured, and a fit of them.

Work in progress lies in ``FIT.json.work``: an artefact a folder, and ``times.jsonl``, a round a line; a second run
goes on there. The weights of a fit are no less than 0 and least in squares of relative errors.
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

from scalesearch.cost import Protocol, cost
from scalesearch.cost.fit import Fit, Setup
from scalesearch.cost.latency import FEATURES, features
from scalesearch.data import Tokenizer
from scalesearch.data.split import BOS, EOS, PAD, UNK
from scalesearch.errors import UserError
from scalesearch.export.base import Format
from scalesearch.export.latency import Latency, Pair, device, pinned, rounds
from scalesearch.files import peek_json, write_json
from scalesearch.nn import build
from scalesearch.space import Space
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.train.checkpoint import Checkpoint
from scalesearch.train.recipe import Recipe

POOL = 20  # draws for each measurement, of which the farthest apart are measured
Array = NDArray[np.float64]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Job:
    """What is calibrated: everything that a second run must share."""

    space: str
    hash: str
    format: str
    quantisation: str
    measurements: int
    held_out: int
    rounds: int
    seed: int
    clock: str
    setup: Setup
    protocol: Mapping[str, Any]


@dataclass(frozen=True)
class Candidate:
    """An architecture to measure, its vocabulary's size and its features."""

    architecture: Any
    words: int
    values: Array


class Words:
    """A vocabulary without a tokenizer: what a format writes of one."""

    def __init__(self, size: int) -> None:
        self.vocab_size = size

    def pieces(self) -> list[tuple[str, float]]:
        """Entries and their scores."""
        special = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}
        return [(special.get(at, f"w{at}"), 0.0) for at in range(self.vocab_size)]


def calibrate(space: Space, protocol: Protocol, format: Format, job: Job, out: Path,
              progress: Progress = lambda what, done, of: None) -> Fit:
    """Measures artefacts of ``space`` and writes a fit of their latencies to ``out``.

    Raises:
        UserError: too few can be exported, or ``out`` was begun with other settings.
    """
    versions, work = format.versions(), out.with_name(f"{out.name}.work")
    chosen, left_out = spread(space, protocol, format, job)
    _begin(work, job)
    with pinned(job.setup.threads):
        decoders = {}
        for at, (name, one) in enumerate(chosen.items()):
            folder = work / name
            if not folder.is_dir():
                _write(one, format, job, folder)
            decoders[name] = format.open(folder, job.setup.threads)
            progress("artefacts", at + 1, len(chosen))
        times = _times(work)
        words = {name: one.words for name, one in chosen.items()}
        for found in rounds(decoders, words, job.setup, job.rounds, len(times)):
            times.append(found)
            with (work / "times.jsonl").open("a") as file:
                file.write(json.dumps(found) + "\n")
            progress("rounds", len(times), job.rounds)
    fit = fitted(chosen, times, job, versions, left_out)
    write_json(out, asdict(fit))
    shutil.rmtree(work)
    return fit


def _begin(work: Path, job: Job) -> None:
    said = json.loads(json.dumps(asdict(job)))
    before = peek_json(work / "job.json", dict[str, Any])
    if before is not None and before != said:
        differ = ", ".join(key for key in said if before.get(key) != said[key])
        raise UserError(f"{work}: begun with another {differ}; give the same settings to go on, or remove it",
                        code="other-calibration")
    work.mkdir(parents=True, exist_ok=True)
    write_json(work / "job.json", said)


def _times(work: Path) -> list[dict[str, Pair]]:
    """Rounds that were measured before; one that was cut off does not count."""
    file = work / "times.jsonl"
    whole = [line for line in file.read_text().splitlines(True) if line.endswith("\n")] if file.exists() else []
    if file.exists():
        file.write_text("".join(whole))
    return [json.loads(line) for line in whole]


def _write(one: Candidate, format: Format, job: Job, folder: Path) -> None:
    """An artefact of random weights; the folder is there once it is whole."""
    model = build(one.architecture.block, vocab=one.words).eval()
    part = folder.with_name(f".{folder.name}")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    trained = Checkpoint(model, cast(Tokenizer, Words(one.words)), one.architecture, False,
                         max(job.setup.source, job.setup.target), Recipe(steps=1), "translation")
    format.write(trained, part, job.quantisation)
    part.rename(folder)


# -- which architectures


def spread(space: Space, protocol: Protocol, format: Format, job: Job) -> tuple[dict[str, Candidate], int]:
    """Architectures by id, those to be fitted first, and how many draws were left out.

    They are far from each other in the logarithms of their features; those that are held out are drawn from the rest.
    """
    count = job.measurements + job.held_out
    rng, found, left_out = random.Random(job.seed), dict[str, Candidate](), 0
    for _ in range(POOL * count):
        one = _drawn(space, protocol, job, rng)
        if one is None:
            continue
        if format.refusals(one.architecture.block):
            left_out += 1
        else:
            found.setdefault(one.architecture.id, one)
    if len(found) < count:
        raise UserError(f"{job.space}: {len(found)} of {POOL * count:,} random candidates differ, can be "
                        f"built, meet the space's constraints and are taken by {format.name}; {count} are "
                        "to be measured", help="measure fewer, or widen the space", code="too-few")
    names = list(found)
    logs = np.log1p(np.stack([one.values for one in found.values()]))
    scale = logs.std(0)
    spread = farthest(logs[:, scale > 0] / scale[scale > 0], job.measurements)
    others = rng.sample(sorted(set(range(len(names))) - set(spread)), job.held_out)
    return {names[at]: found[names[at]] for at in (*spread, *others)}, left_out


def _drawn(space: Space, protocol: Protocol, job: Job, rng: random.Random) -> Candidate | None:
    """A random candidate that meets the space's constraints; its features are 0 where its format refuses it."""
    try:
        architecture = space.architecture(space.sample(rng))
        mine = protocol.of(architecture.answers).at(architecture.vocab)
        bill = cost(architecture.block, mine)
    except UserError:
        return None
    if not all(one.holds(lambda name: bill[name] if name in COST_NAMES else architecture.answers[name])
               for one in space.where):
        return None
    try:
        found = features(architecture.block, f"{job.format}-{job.quantisation}", job.setup, mine)
    except UserError:
        found = {}
    return Candidate(architecture, mine.words, np.array([found.get(name, 0) for name in FEATURES], float))


def farthest(points: Array, count: int) -> list[int]:
    """Indices of ``count`` points, each the farthest from those before; the first is nearest to the middle."""
    chosen = [int(np.linalg.norm(points - points.mean(0), axis=1).argmin())]
    distance = np.full(len(points), np.inf)
    while len(chosen) < count:
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
        chosen.append(int(distance.argmax()))
    return chosen


# -- the fit


def fitted(chosen: Mapping[str, Candidate], times: list[dict[str, Pair]], job: Job, versions: dict[str, str],
           left_out: int) -> Fit:
    """The fit of what was measured."""
    found = {name: Latency.of([tuple(one[name]) for one in times]) for name in chosen}  # type: ignore[misc]
    wanted = np.array([one.cpu if job.clock == "cpu" else one.p50 for one in found.values()])
    values, count = np.stack([one.values for one in chosen.values()]), job.measurements
    weights, without, predicted = cross_fitted(values[:count], wanted[:count])
    rows = [{"id": name, "answers": dict(one.architecture.answers), **asdict(found[name]),
             "features": one.values.tolist()} for name, one in chosen.items()]
    fit = Fit(f"{job.format}-{job.quantisation}", job.setup, job.clock, job.protocol["vocab"],
              device(job.setup.threads), versions, list(FEATURES), weights.tolist(), without.tolist(),
              np.abs(wanted[:count] / predicted - 1).tolist(), job.space, job.seed, job.rounds, left_out)
    fit.candidates.extend(row | {"held_out": float(said)} for row, said in zip(rows, predicted))
    for row, value in zip(rows[count:], values[count:]):
        low, high = fit.interval(value)
        fit.others.append(row | {"held_out": fit.predict(value), "low": low, "high": high})
    return fit


def cross_fitted(values: Array, wanted: Array) -> tuple[Array, Array, Array]:
    """Weights (features,), those without each row (rows, features), and predictions of each row by the latter."""
    rows = np.arange(len(values))
    without = np.stack([least_squares(values[rows != at], wanted[rows != at]) for at in rows])
    predicted = np.maximum((values * without).sum(1), np.finfo(float).tiny)
    return least_squares(values, wanted), without, predicted


def least_squares(values: Array, wanted: Array) -> Array:
    """Non-negative weights of least relative squared error."""
    from scipy.optimize import nnls

    relative = values / wanted[:, None]
    scale = np.where((most := relative.max(0)) > 0, most, 1)
    found: Array = nnls(relative / scale, np.ones(len(wanted)))[0] / scale
    return found


def summary(fit: Fit) -> Iterator[str]:
    """What was measured and how well it is predicted, for people."""
    times = [one["p50"] for one in fit.candidates]
    yield str(fit)
    yield (f"p50 {min(times):.3g} to {max(times):.3g} ms a sentence; {fit.rounds} rounds, "
           f"{sum(one['unsteady'] for one in fit.candidates)} of {len(times)} unsteady; {fit.left_out} draws left out, "
           "which the format cannot hold")
    if fit.others:
        wanted, said, low, high = (np.array([one[key] for one in fit.others])
                                   for key in ("cpu" if fit.clock == "cpu" else "p50", "held_out", "low", "high"))
        errors, inside = np.abs(said / wanted - 1), (low <= wanted) & (wanted <= high)
        yield (f"{len(wanted)} others, not fitted: error {errors.mean():.1%} in the mean, {np.median(errors):.1%} in "
               f"the median; {inside.mean():.0%} lie in their 90 % intervals")
    for name, weight in zip(fit.features, fit.weights):
        if weight:
            yield f"  {name}: {weight:.3g} ms each"
