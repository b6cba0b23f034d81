"""``scalesearch latency``: latency and peak memory of artifacts, and a predictor of it for a whole space."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from scalesearch.cli.export import QUANTIZATIONS
from scalesearch.cli.options import (
    THREAD_COUNT,
    OutputPath,
    json_option,
    load_space,
    print_json,
    progress_bars,
    seed_option,
    set_option,
)
from scalesearch.cost.latency_model import DecodingSetup
from scalesearch.errors import UserError
from scalesearch.export.formats import FORMAT_CLASSES
from scalesearch.terminal import make_table, print_text

BYTES_PER_MIB = 1 << 20


@click.group(name="latency")
def command() -> None:
    """Latency of artifacts: measured, and predicted before anything is trained."""


def decoding_options(command_function: Callable[..., Any]) -> Callable[..., Any]:
    """How artifacts decode while they are measured: ``setup``, and ``rounds``."""

    @functools.wraps(command_function)
    def gathered(**options: Any) -> Any:
        return command_function(
            setup=DecodingSetup(*(options.pop(name)
                                  for name in ("batch", "beam", "source", "target", "threads"))),
            **options)

    for option in (click.option("--rounds", default=20, show_default=True, type=click.IntRange(4),
                                help="Of all, in turn."),
                   click.option("--threads", default=1, show_default=True, type=THREAD_COUNT,
                                help="And cores."),
                   click.option("--target", default=30, show_default=True, type=click.IntRange(2),
                                help="Tokens of every translation."),
                   click.option("--source", default=30, show_default=True, type=click.IntRange(2),
                                help="Tokens of every source, EOS among them."),
                   click.option("--beam", default=1, show_default=True, type=click.IntRange(1)),
                   click.option("--batch", default=1, show_default=True, type=click.IntRange(1),
                                help="Sentences at once.")):
        gathered = option(gathered)
    return gathered


def format_options(command_function: Callable[..., Any]) -> Callable[..., Any]:
    """``--to`` and ``--quantize``."""
    command_function = click.option("--quantize", "quantize", type=click.Choice(QUANTIZATIONS),
                                    help="The format's own, if not given.")(command_function)
    return click.option("--to", "format_name", default="ctranslate2", show_default=True,
                        type=click.Choice(list(FORMAT_CLASSES)),
                        help="Format of what is no artifact yet.")(command_function)


@command.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL_OR_ARTIFACT...")
@format_options
@decoding_options
@click.option("--memory", is_flag=True,
              help="Also the peak memory of each artifact, in a process of its own.")
@json_option
def measure(models: tuple[str, ...], format_name: str, quantize: str | None, setup: DecodingSetup,
            rounds: int, memory: bool, as_json: bool) -> None:
    """Measure latency in ms a sentence, of all in turn, on cores of their own.

    A trained folder is measured as the format of --to, without being verified.
    """
    from scalesearch.export import latency
    from scalesearch.export.export import ARTIFACT_FILE, Artifact, open_artifact
    from scalesearch.export.formats import get_format
    from scalesearch.files import read_json

    found: dict[str, list[latency.WallAndCpuTime]] = {model: [] for model in models}
    decoders = {}
    words = {}
    peaks = {}
    formats = dict[str, str]()
    versions = dict[str, str]()
    with ExitStack() as stack:
        folders = {model: stack.enter_context(_artifact_folder(Path(model), format_name, quantize))
                   for model in models}
        with latency.pinned_threads(setup.threads) as cores:
            for model, folder in folders.items():
                described, decoders[model] = open_artifact(folder, setup.threads)
                latency.check_target_length(model, described.model, setup)
                words[model] = described.tokenizer.vocab_size
                artifact = read_json(folder / ARTIFACT_FILE, Artifact)
                formats[model] = f"{artifact.format}-{artifact.quantization}"
                versions |= get_format(artifact.format).package_versions()
            with progress_bars() as tell:
                for at, times in enumerate(latency.measure_rounds(decoders, words, setup, rounds)):
                    tell("rounds", at + 1, rounds)
                    for model, pair in times.items():
                        found[model].append(pair)
        if memory:
            peaks = {model: latency.measure_peak_memory(folder, setup)
                     for model, folder in folders.items()}
    results = {model: {"format": formats[model], "computed": decoders[model].compute_type or None,
                       **asdict(latency.LatencyStatistics.from_times(times)),
                       **peaks.get(model, {})} for model, times in found.items()}
    device = latency.describe_device(setup.threads) | {"pinned": cores, "versions": versions}
    if as_json:
        print_json({"setup": asdict(setup), "device": device, "measured": results})
        return
    headings = ("", "format", "p50 ms", "p90 ms", "CPU ms", "", *("peak MiB", "own MiB") * memory)
    print_text(
        make_table(headings,
                   [(model, _format(one), *(f"{one[key]:.3g}" for key in ("p50", "p90", "cpu")),
                     "unstable" * one["is_unstable"],
                     *(f"{one[key] / BYTES_PER_MIB:,.1f}" for key in ("peak", "own") if memory))
                    for model, one in results.items()], left_columns=(0, 1)))
    print_text(f"ms a sentence: {setup}; {rounds} rounds on {device['processor']}, core "
               f"{', '.join(map(str, cores)) or 'any'}"
               + "".join(f"; {package} {number}" for package, number in versions.items()))


def _format(one: Mapping[str, Any]) -> str:
    """What was measured, and the type that it computes in where that is another."""
    inside = one["computed"] and not one["computed"].startswith(one["format"].rpartition("-")[2])
    return one["format"] + (f" ({one['computed']})" if inside else "")


@contextmanager
def _artifact_folder(folder: Path, name: str, quantize: str | None) -> Iterator[Path]:
    """The artifact in ``folder``, or one that is made for now of the training in it."""
    from scalesearch.export.export import ARTIFACT_FILE, write_description
    from scalesearch.export.formats import check_exportable, get_format, resolve_quantization
    from scalesearch.train import read_checkpoint

    if (folder / ARTIFACT_FILE).is_file():
        yield folder
        return
    trained = read_checkpoint(folder)
    format = get_format(name)
    quantization = resolve_quantization(format, quantize)
    check_exportable(format, trained.architecture.block, quantization)
    format.package_versions()
    with tempfile.TemporaryDirectory() as place:
        format.write(trained, Path(place), quantization)
        write_description(trained, Path(place), format, quantization)
        yield Path(place)


@command.command()
@click.argument("file", metavar="SPACE")
@set_option
@click.option("--vocab", type=int, metavar="V", help="Vocabulary size, if not the space's.")
@format_options
@click.option("--measurements", default=40, show_default=True, type=click.IntRange(9),
              help="Artifacts to fit.")
@click.option("--held-out", default=0, show_default=True, type=click.IntRange(0),
              help="More artifacts, measured in the same rounds, on which the fit is tested.")
@decoding_options
@click.option("--clock", type=click.Choice(("wall", "cpu")), default="wall", show_default=True,
              help="Whose median is predicted; cpu on a machine that others use, too.")
@seed_option(0, "Of the random candidates.")
@click.option("--out", required=True, type=OutputPath(), metavar="FIT.json",
              help="File to write; work goes on beside it.")
@json_option
def calibrate(file: str, settings: tuple[str, ...], vocab: int | None, format_name: str,
              quantize: str | None, measurements: int, held_out: int, setup: DecodingSetup,
              rounds: int, clock: str, seed: int, out: Path, as_json: bool) -> None:
    """Fit a predictor of latency for the space SPACE, from artifacts with random weights.

    `protocol: {latency: FIT.json}` then makes latency.predicted a cost of every candidate. Stopped,
    it goes on where it was when it is run again.
    """
    from scalesearch.cost import load_protocol
    from scalesearch.export.calibration import CalibrationSettings, calibrate_latency, summarize_fit
    from scalesearch.export.formats import get_format, resolve_quantization

    format = get_format(format_name)
    space = load_space(file, settings)
    if not format.has_decoder:
        raise UserError(f"--to {format.name} holds a training's own files; give another format",
                        code="not-exportable")
    quantization = resolve_quantization(format, quantize)
    if clock == "cpu" and setup.threads > 1:
        raise UserError("--clock cpu counts the time of all threads, which is no latency; give "
                        "--threads 1", code="options-conflict")
    protocol = load_protocol(space.protocol, vocab=vocab)
    job = CalibrationSettings(space.name, space.hash, format_name, quantization, measurements,
                              held_out, rounds, seed, clock, setup, protocol.settings)
    with progress_bars() as tell:
        fit = calibrate_latency(space, protocol, format, job, out, tell)
    if as_json:
        print_json(asdict(fit) | {"error": fit.mean_relative_error, "id": fit.id})
        return
    for line in (*summarize_fit(fit), f"-> {out}"):
        print_text(line)


