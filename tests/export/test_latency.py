"""Latency of artifacts: alternating measurement, fit and prediction."""

import json
import os
from dataclasses import replace
from itertools import count
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner

from scalesearch.cli.latency import command
from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.cost.latency_model import (
    DecodingSetup,
    jackknife_plus_interval,
    load_latency_model,
)
from scalesearch.export import calibration
from scalesearch.export.base import ArtifactDecoder, get_format
from scalesearch.export.calibration import (
    CalibrationSettings,
    calibrate_latency,
    leave_one_out_fit,
    nonnegative_least_squares,
)
from scalesearch.export.ctranslate2_ import CTranslate2Format
from scalesearch.export.export import export_model
from scalesearch.export.latency import (
    WARM_UP_ROUNDS,
    LatencyStatistics,
    measure_peak_memory,
    measure_rounds,
    pinned_threads,
)
from scalesearch.export.torch_ import TorchDecoder, TorchFormat
from scalesearch.spaces import Space, read_space
from scalesearch.tasks import TASKS
from scalesearch.training import read_checkpoint, train
from tests.cost.fits import fit_of
from tests.errors import refuses
from tests.export.models import VOCAB, architecture, sentences, untrained
from tests.tasks.small import corpus_of, model_for
from tests.training.conftest import recipe, tiny

SETUP = DecodingSetup(source=6, target=4)


class Recorder(ArtifactDecoder):
    """A decoder that records its calls and takes one tick of the clock."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.calls = calls

    def greedy(self, source_ids, max_lengths, allow_unk=False):
        raise NotImplementedError

    beam_search = greedy

    def decode_fixed_length(self, rows, length, beam):
        assert [len(row) for row in rows] == [SETUP.source] * SETUP.batch and length == SETUP.target
        self.calls.append(self.name)


def test_artifacts_are_measured_alternately_after_warm_up() -> None:
    calls: list[str] = []
    wall = count()
    cpu = count(0, 2)
    decoders = {name: Recorder(name, calls) for name in "abc"}
    rounds = list(measure_rounds(decoders, dict.fromkeys("abc", VOCAB), SETUP, 3,
                                clocks=(wall.__next__, cpu.__next__)))
    assert "".join(
        calls[3 * WARM_UP_ROUNDS :]) == "abccbaabc" and len(calls) == 3 * (WARM_UP_ROUNDS + 3)
    assert rounds == [dict.fromkeys("abc", (1000.0, 2000.0))] * 3
    assert [*rounds[1]] == ["c", "b", "a"]
    assert len(list(measure_rounds(decoders, dict.fromkeys("abc", VOCAB), SETUP, 3, n_done=2))) == 1


@pytest.mark.parametrize(("slower", "unsteady"), [(1.029, False), (1.031, True), (0.9, True)])
def test_measurement_with_different_halves_is_unstable(slower: float, unsteady: bool) -> None:
    times = [(10 * (slower if round_index // 2 % 2 else 1.0), 3.0) for round_index in range(12)]
    statistics = LatencyStatistics.from_times(times)
    assert (statistics.is_unstable, statistics.cpu, statistics.n_rounds) == (unsteady, 3.0, 12)
    assert not LatencyStatistics.from_times([(10 * (slower if round_index % 2 else 1.0), 3.0)
                                             for round_index in range(12)]).is_unstable
    assert statistics.p50 <= statistics.p90
    cpu_times = [(3.0, wall) for wall, _ in times]  # the clock of a calibration can be another one
    assert not LatencyStatistics.from_times(cpu_times).is_unstable
    assert LatencyStatistics.from_times(cpu_times, "cpu").is_unstable == unsteady


def test_cpu_affinity_is_restored() -> None:
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("no affinities on this system")
    before = os.sched_getaffinity(0)
    with pinned_threads(1) as cores:
        assert os.sched_getaffinity(0) == set(cores) and len(cores) == 1
    assert os.sched_getaffinity(0) == before
    with refuses("too-few-cores", str(len(before)), place="--threads"), \
            pinned_threads(len(before) + 1):
        pass


@pytest.mark.parametrize("beam", [1, 3])
def test_fixed_length_decoding_has_given_number_of_steps(beam, tmp_path, monkeypatch) -> None:
    trained = untrained(architecture())
    rows = sentences(3)
    steps = count()
    decode = trained.model.decode
    monkeypatch.setattr(trained.model, "decode", lambda *args: (next(steps), decode(*args))[1])
    TorchDecoder(trained.model).decode_fixed_length(rows, 9, beam)
    assert next(steps) == 9
    CTranslate2Format().write(trained, tmp_path, "int8")
    decoder = CTranslate2Format().open_decoder(tmp_path, 1)
    events = []
    run = decoder._run
    monkeypatch.setattr(decoder, "_run", lambda *args,
                        **options: events.extend(run(*args, **options)))
    decoder.decode_fixed_length(rows, 9, beam)
    assert [len(ids) for [(ids, _)] in events] == [9] * 3


# -- the fit


def synthetic(rng: np.random.Generator, rows: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Features and times of a device: linear with relative noise."""
    values = np.concatenate([np.ones((rows, 1)), rng.lognormal(10, 1, (rows, 5))], 1)
    truth = np.array([2.0, 1e-4, 0, 3e-5, 2e-4, 1e-5])
    return values, values @ truth * (1 + noise * rng.standard_normal(rows))


def test_fit_of_linear_device_is_exact() -> None:
    values, times = synthetic(np.random.default_rng(0), 30, 0)
    assert nonnegative_least_squares(values, times) == pytest.approx(
        [2, 1e-4, 0, 3e-5, 2e-4, 1e-5], abs=1e-12)
    _, without, predicted = leave_one_out_fit(values, times)
    assert predicted == pytest.approx(times) and without.shape == (30, 6)


def test_intervals_cover_90_percent_of_noisy_times() -> None:
    inside = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        values, times = synthetic(rng, 40, 0.05)
        _, without, predicted = leave_one_out_fit(values, times)
        residuals = np.abs(times / predicted - 1)
        for features, time in zip(*synthetic(rng, 40, 0.05)):
            low, high = jackknife_plus_interval(without @ features, residuals)
            inside.append(low <= time <= high)
    assert 0.85 <= np.mean(inside) <= 0.96


# -- all of it


SPACE = """
space: few
width: 16 | 32
encoder: { depth: 1 | 2 | 3, heads: 2, ffn: { relu: { hidden: 16 | 64 } } }
decoder: { depth: 1 | 2, heads: 2, ffn: { relu: { hidden: 16 | 64 } } }
"""


@pytest.fixture
def job(tmp_path) -> CalibrationSettings:
    """A calibration job of tiny models."""
    (tmp_path / "few.yaml").write_text(SPACE)
    return CalibrationSettings("few", "abc", "ctranslate2", "int8", 9, 2, 4, 0, "cpu", SETUP,
                               load_protocol({"vocab": 60}).settings)


@pytest.mark.full
def test_calibration_resumes_and_predicts_all_candidates(job, tmp_path, monkeypatch) -> None:
    space = read_space(tmp_path / "few.yaml")
    protocol = load_protocol(job.protocol)
    out = tmp_path / "fit.json"

    def stop(what: str, done: int, of: int) -> None:
        if what == "rounds" and done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate_latency(space, protocol, CTranslate2Format(), job, out, stop)
    work = tmp_path / "fit.json.work"
    kept = (work / "times.jsonl").read_text()
    assert len(kept.splitlines()) == 2 and not out.exists()
    with (work / "times.jsonl").open("ab") as file:
        file.write(b'{"damaged\xff": [1, 1]}\n{"cut off')
    with refuses("other-calibration", "seed"):
        calibrate_latency(space, protocol, CTranslate2Format(), replace(job, seed=1), out)
    with refuses("other-calibration", "hash"):  # of a space of the same name that has changed
        calibrate_latency(space, protocol, CTranslate2Format(), replace(job, space_hash="abd"), out)
    monkeypatch.setattr(calibration, "_write_artifact", lambda *args: pytest.fail("written again"))
    fit = calibrate_latency(space, protocol, CTranslate2Format(), job, out)
    assert not work.exists() and fit == load_latency_model(str(out)) and len(fit.candidates) == 9
    first = [json.loads(line) for line in kept.splitlines()]
    assert all(
        candidate["n_rounds"] == 4 and candidate["id"] in first[0] for candidate in fit.candidates
    )
    held_out = np.array([candidate["held_out"] for candidate in fit.candidates])
    measured = np.array([candidate["cpu"] for candidate in fit.candidates])
    assert fit.mean_relative_error == pytest.approx(np.abs(measured / held_out - 1).mean())
    costs = evaluate_cost(space.architecture(space.sample(Random(1))).block,
                load_protocol({"vocab": 60, "latency": str(out)}))
    assert costs["latency.predicted"] > 0
    summary = "\n".join(calibration.summarize_fit(fit))
    assert len(fit.others) == 2 and not {candidate["id"] for candidate in fit.others} & {
        candidate["id"] for candidate in fit.candidates}
    assert all(candidate["low"] < candidate["held_out"] < candidate["high"]
               for candidate in fit.others) and "2 held-out models" in summary


@pytest.mark.parametrize(("text", "format", "reason"), [
    ("width: 16", "ctranslate2", None),
    ("width: 16\nencoder: { gate: QgV }", "ctranslate2", "gate QgV"),
    ("width: 16\nmodel: encoder-only", "onnx", "encoder-only"),
    ("width: 16\nmodel: encoder-only", "huggingface", "encoder-only")])
def test_small_space_cannot_be_calibrated(
        text: str, format: str, reason: str | None, job, tmp_path) -> None:
    """Encoder-only models failed while they were exported."""
    job = replace(job, format=format, quantization="none")
    with refuses("too-few-candidates", "widen the space", *([reason] if reason else [])) as error:
        calibrate_latency(Space.parse(text), load_protocol(job.protocol), get_format(format), job,
                          tmp_path / "fit.json")
    assert "--measurements" not in str(error.value)  # a fit needs nine
    assert ("--to" in str(error.value)) == bool(reason)
    assert not (tmp_path / "fit.json.work").exists()


@pytest.mark.parametrize(("max_length", "side"), [(5, "--source"), (6, "--target")])
def test_calibration_needs_positions_for_all_tokens(
        max_length: int, side: str, job, tmp_path) -> None:
    space = Space.parse(SPACE + f"embedding: {{ positions: learned, max_length: {max_length} }}\n")
    with refuses("too-long", str(max_length), side):
        calibrate_latency(space, load_protocol(job.protocol), CTranslate2Format(),
                          replace(job, decoding_setup=DecodingSetup(source=6, target=7)),
                          tmp_path / "fit.json")


def test_number_of_measurements_can_be_lowered(job, tmp_path) -> None:
    with refuses("too-few-candidates", "--measurements", "--held-out"):
        calibrate_latency(read_space(tmp_path / "few.yaml"), load_protocol(job.protocol),
                          CTranslate2Format(), replace(job, n_held_out=90), tmp_path / "fit.json")


def test_summary_of_a_fit_has_the_time_of_its_clock_and_advice() -> None:
    candidates = [{"p50": 9.0, "cpu": 3.0, "is_unstable": False}]
    accurate, inaccurate = ("\n".join(calibration.summarize_fit(
        fit_of(clock=clock, candidates=candidates, residuals=[error] * 20)))
        for clock, error in (("cpu", 0.09), ("wall", 0.11)))
    assert "median CPU time 3 to 3 ms" in accurate and "--clock cpu" not in accurate
    assert "p50 9 to 9 ms" in inaccurate and "above 10%" in inaccurate
    assert "--clock cpu" in inaccurate


@pytest.mark.full
def test_training_run_and_artifact_are_measured(trained_folder, tmp_path) -> None:
    out = tmp_path / "model"
    export_model(read_checkpoint(trained_folder), out, TorchFormat(), "none", None)
    words = ["measure", str(trained_folder), str(out), "--source", "5", "--target", "4", "--rounds",
             "4", "--json"]
    report = json.loads(CliRunner().invoke(command, words, catch_exceptions=False).stdout)
    assert list(report["measured"]) == [str(trained_folder),
                                       str(out)] and report["setup"]["target"] == 4
    assert all(0 < measurement["p50"] <= measurement["p90"] and measurement["n_rounds"] == 4
               for measurement in report["measured"].values())
    assert [measurement["format"] for measurement in report["measured"].values()] == [
        "ctranslate2-int8",
        "torch-none",
    ]
    assert [bool(measurement["computed"]) for measurement in report["measured"].values()] == [
        True,
        False,
    ]
    assert report["device"]["threads"] == 1
    with refuses("options-conflict", place="--quantize int8"):  # it would have no effect
        raise CliRunner().invoke(command, ["measure", str(out), "--quantize", "int8"]).exception


@pytest.mark.full
def test_measure_prints_a_table(trained_folder) -> None:
    arguments = ["measure", str(trained_folder), "--source", "5", "--target", "4", "--rounds", "4"]
    output = CliRunner().invoke(command, arguments, catch_exceptions=False).stdout
    assert "ctranslate2-int8" in output and "p50 ms" in output and "4 rounds on" in output


@pytest.mark.parametrize(("arguments", "code"), [
    (["--clock", "cpu", "--threads", "2"], "options-conflict"),
    (["--to", "torch"], "not-exportable"),
])
def test_calibrate_checks_its_options(arguments: list[str], code: str, tmp_path) -> None:
    with refuses(code):
        raise CliRunner().invoke(command, ["calibrate", "small/plain", "--out",
                                           str(tmp_path / "fit.json"), *arguments]).exception


def test_more_tokens_than_positions_are_refused(corpus, tmp_path) -> None:
    train(tiny(embedding__positions="learned", embedding__max_length=64), corpus, recipe(steps=1),
          tmp_path / "model")
    for source, target, side in ((65, 4, "--source"), (5, 65, "--target")):
        words = ["measure", str(tmp_path / "model"), "--to", "torch", "--source", str(source),
                 "--target", str(target)]
        with refuses("too-long", "64", side):
            raise CliRunner().invoke(command, words).exception


@pytest.mark.parametrize("task", ["classification", "masked-language-model"])
def test_models_that_generate_no_text_are_refused(task: str, tmp_path) -> None:
    """A search ran on a classifier, and its time was printed as that of 30 target tokens."""
    train(model_for(TASKS[task]), corpus_of(TASKS[task], tmp_path), recipe(steps=1),
          tmp_path / "model")
    words = ["measure", str(tmp_path / "model"), "--to", "torch", "--rounds", "4"]
    with refuses("other-task", task, "`latency`"):
        raise CliRunner().invoke(command, words).exception


@pytest.mark.slow  # a process that imports everything
def test_memory_is_measured_in_another_process(trained_folder, tmp_path) -> None:
    out = tmp_path / "model"
    export_model(read_checkpoint(trained_folder), out, TorchFormat(), "none", None)
    memory = measure_peak_memory(out, SETUP)
    assert 0 <= memory["own"] < memory["peak"]
    with refuses("not-measured", "lost"):
        measure_peak_memory(tmp_path / "lost", SETUP)
