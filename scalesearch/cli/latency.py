"""``scalesearch latency``: measure exported models, and fit a latency model."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import (
    OutputPath,
    complete_space,
    distinct_names,
    grouped_options,
    load_space,
    option,
    print_json,
    progress_bars,
)
from scalesearch.cost.latency_model import DecodingSetup
from scalesearch.errors import UserError
from scalesearch.export.base import FORMAT_CLASSES
from scalesearch.terminal import make_table, print_text

if TYPE_CHECKING:
    from rich.table import Table

BYTES_PER_MIB = 1 << 20


@click.group(name="latency")
def command() -> None:
    """Measure the latency of exported models; fit a latency model for a space."""


TOKENS = click.IntRange(2)
decoding_options = grouped_options(
    "setup", DecodingSetup,
    batch=option("batch", default=1, help="Sentences per batch."),
    beam=option("beam", default=1),
    source=option("source", default=30, type=TOKENS, metavar=None,
                  help="Source tokens per sentence, including EOS."),
    target=option("target", default=30, type=TOKENS, metavar=None),
    threads=option("threads"))
rounds_option = click.option("--rounds", default=20, show_default=True, type=click.IntRange(4),
                             help="Measurement rounds; every model is measured once per round.")
format_option = option("to", type=click.Choice(list(FORMAT_CLASSES)))


@command.command()
@click.argument("models", nargs=-1, required=True, type=click.Path(),
                metavar="MODEL_OR_ARTIFACT...")
@format_option
@option("quantize")
@decoding_options
@rounds_option
@click.option("--memory", is_flag=True,
              help="Also measure the peak memory of each model, in a separate process.")
@option("json")
def measure(models: tuple[str, ...], format_name: str, quantize: str | None, setup: DecodingSetup,
            rounds: int, memory: bool, as_json: bool) -> None:
    """Measure latency in ms per sentence, on pinned cores.

    Models are trained or exported. A trained model is exported to the format of --to for the
    measurement, without verification. All models are measured in turn.

    \b
    Example: scalesearch latency measure runs/a runs/b --rounds 40
    """
    from scalesearch.export import latency
    from scalesearch.export.base import get_format, resolve_quantization
    from scalesearch.export.export import (
        ARTIFACT_FILE,
        Artifact,
        open_artifact,
        temporary_artifact,
    )
    from scalesearch.files import read_json
    from scalesearch.training.scoring.evaluate import check_beam

    times: dict[str, list[latency.WallAndCpuTime]] = {model: [] for model in models}
    folders = {model: Path(model) for model in models}
    trained = [model for model in models if not (folders[model] / ARTIFACT_FILE).is_file()]
    if quantize and not trained:
        raise UserError(f"--quantize {quantize}: all models are exported already; name the trained "
                        "models, or remove the option", code="options-conflict")
    format = get_format(format_name)
    with ExitStack() as stack:
        for model in trained:
            _, folders[model] = stack.enter_context(temporary_artifact(
                folders[model], format, resolve_quantization(format, quantize)))
        artifacts = {model: read_json(folder / ARTIFACT_FILE, Artifact)
                     for model, folder in folders.items()}
        with latency.pinned_threads(setup.threads) as cores:
            decoders = {}
            vocab_sizes = {}
            for model, folder in folders.items():
                described, decoders[model] = open_artifact(folder, setup.threads)
                latency.check_decoding(model, described, setup)
                vocab_sizes[model] = described.tokenizer.vocab_size
                check_beam(setup.beam, described.tokenizer.target.vocab_size)
            with progress_bars() as update_bar:
                measured = latency.measure_rounds(decoders, vocab_sizes, setup, rounds)
                for number, round_times in enumerate(measured, 1):
                    update_bar("rounds", number, rounds)
                    for model, model_times in round_times.items():
                        times[model].append(model_times)
        peaks = {model: latency.measure_peak_memory(folder, setup) if memory else {}
                 for model, folder in folders.items()}
    results = {model: {"format": f"{artifact.format}-{artifact.quantization}",
                       "computed": decoders[model].compute_type or None,
                       **asdict(latency.LatencyStatistics.from_times(times[model])),
                       **peaks[model]} for model, artifact in artifacts.items()}
    versions: dict[str, str] = {}
    for artifact in artifacts.values():
        versions |= get_format(artifact.format).package_versions()
    device = latency.describe_device(setup.threads) | {"pinned": cores, "versions": versions}
    if as_json:
        print_json({"setup": asdict(setup), "device": device, "measured": results})
        return
    names = dict(zip(results, distinct_names([*results])))
    print_text(latency_table({names[model]: result for model, result in results.items()}, memory))
    for model, name in names.items():
        if name != model:
            print_text(f"{name}: {model}")
    print_text(f"ms per sentence: {setup}; {rounds} rounds on {device['processor']}, core "
               f"{', '.join(map(str, cores)) or 'any'}"
               + "".join(f"; {package} {number}" for package, number in versions.items()))
    if memory:
        print_text("model MiB: peak minus the memory of a process without a model")


def latency_table(results: Mapping[str, Mapping[str, Any]], memory: bool) -> Table:
    """Make the table of the times, and of the ``memory``, of each model."""
    headings = ("model", "format", "p50 ms", "p90 ms", "CPU ms", "",
                *("peak MiB", "model MiB") * memory)
    rows = []
    for model, result in results.items():
        # The format, and the compute type if it differs from the weight type.
        name = result["format"]
        compute_type = result["computed"] or ""
        if not compute_type.startswith(name.rpartition("-")[2]) and compute_type:
            name = f"{name} ({compute_type})"
        rows.append((model, name, *(f"{result[key]:.3g}" for key in ("p50", "p90", "cpu")),
                     "unstable" * result["is_unstable"],
                     *(f"{result[key] / BYTES_PER_MIB:,.1f}" for key in ("peak", "own") if memory)))
    return make_table(headings, rows, left_columns=(0, 1))


@command.command()
@click.argument("file", metavar="SPACE", shell_complete=complete_space)
@option("set")
@option("vocab", help="Vocabulary size (default: that of the space).")
@format_option
@option("quantize")
@click.option("--measurements", default=40, show_default=True, type=click.IntRange(9),
              help="Number of exported models to fit on.")
@click.option("--held-out", default=0, show_default=True, type=click.IntRange(0),
              help="Number of additional models to test the fit on, measured in the same rounds.")
@decoding_options
@rounds_option
@click.option("--clock", type=click.Choice(("wall", "cpu")), default="wall", show_default=True,
              help="Time to predict: wall, or cpu if the machine is shared.")
@option("seed", default=0, help="Random seed of the candidates.")
@option("out", required=True, type=OutputPath(), metavar="FIT.json",
        help="Output file. Intermediate results are stored next to it.")
@option("json")
def calibrate(file: str, settings: tuple[str, ...], vocab: int | None, format_name: str,
              quantize: str | None, measurements: int, held_out: int, setup: DecodingSetup,
              rounds: int, clock: str, seed: int, out: Path, as_json: bool) -> None:
    """Fit a latency model for the space SPACE.

    Exported models with random weights are measured.

    With `protocol: {latency: FIT.json}` in a space, latency.predicted is a cost of every candidate.
    Run the same command again to resume an interrupted calibration.

    \b
    Example: scalesearch latency calibrate small/device --out fit.json
    """
    from scalesearch.cost import load_protocol
    from scalesearch.export.base import get_format, resolve_quantization
    from scalesearch.export.calibration import CalibrationSettings, calibrate_latency, summarize_fit

    format = get_format(format_name)
    space = load_space(file, settings)
    if not format.has_decoder:
        raise UserError(f"--to {format.name} copies the files of a training run; choose another "
                        "format", code="not-exportable")
    quantization = resolve_quantization(format, quantize)
    if clock == "cpu" and setup.threads > 1:
        raise UserError("--clock cpu adds up the time of all threads, which is not a latency; set "
                        "--threads 1", code="options-conflict")
    protocol = load_protocol(space.protocol, vocab=vocab)
    calibration = CalibrationSettings(space.name, space.hash, format_name, quantization,
                                      measurements, held_out, rounds, seed, clock, setup,
                                      protocol.settings)
    with progress_bars() as update_bar:
        fit = calibrate_latency(space, protocol, format, calibration, out, update_bar)
    if as_json:
        print_json(asdict(fit) | {"error": fit.mean_relative_error, "id": fit.id})
        return
    for line in (*summarize_fit(fit), f"-> {out}"):
        print_text(line)
