"""Speed of a trained model's artifacts beside our own decoder, greedy, interleaved in one process.

    python benchmarks/artifacts.py TRAINED [--sentences 256] [--rounds 5] [--artifacts DIRECTORY]

Exports TRAINED as CTranslate2 and ONNX, in float32 and int8, and decodes validation sentences with
each and with the model itself, in float32 and in bf16: sentences a CPU-second in batches of 64 of
like length, and milliseconds of CPU time a sentence in batches of one. One thread. The median and
the range of rounds in which all take turns. BLEU of all translations stands beside, since a decoder
that says something else is no faster one.
"""

import argparse
import time
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from scalesearch.data import DataSpec
from scalesearch.data.split import Split
from scalesearch.export.base import ArtifactDecoder, get_format
from scalesearch.export.export import VerificationSample, export_model, open_artifact
from scalesearch.export.torch_ import TorchDecoder
from scalesearch.files import read_json
from scalesearch.nn.decode import EOS, length_limits
from scalesearch.tasks import TASKS
from scalesearch.train.checkpoint import DATA_FILE, Checkpoint, read_checkpoint

ARTIFACTS = [("ctranslate2", "none"), ("ctranslate2", "int8"), ("onnx", "none"), ("onnx", "int8")]
Rows = list[list[int]]


class Autocast(TorchDecoder):
    """Our own decoder as trainings score: products in bf16."""

    def greedy(self, source_ids: Rows, max_lengths: list[int]) -> Rows:
        with torch.autocast("cpu", torch.bfloat16):
            return super().greedy(source_ids, max_lengths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trained", type=Path)
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--single", type=int, default=48, help="sentences in batches of one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--artifacts", type=Path, default=Path("runs/artifacts"),
                        help="kept, and taken if there")
    given = parser.parse_args()
    torch.set_num_threads(1)
    trained = read_checkpoint(given.trained)
    spec = DataSpec.from_mapping(read_json(given.trained / DATA_FILE, dict)["spec"])
    sample = VerificationSample.from_data(trained, spec, given.sentences)
    rows = sorted(source_rows(sample.split), key=len)
    decoders = opened(trained, sample, given.artifacts)
    batches = [rows[at:at + 64] for at in range(0, len(rows), 64)]
    singles = [[row] for row in rows[::max(1, len(rows) // given.single)]]
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in decoders}
    # the first warms up
    for _ in track(range(given.rounds + 1), "rounds", console=Console(stderr=True)):
        for name, decoder in decoders.items():
            took[name].append((seconds(decoder, trained, batches),
                               seconds(decoder, trained, singles)))
    said = {name: scored(decoder, trained, sample) for name, decoder in decoders.items()}
    Console(width=120).print(table(took, said, len(rows), len(singles)))


def opened(trained: Checkpoint, sample: VerificationSample, folder: Path) -> dict[
        str, ArtifactDecoder]:
    """The model's own decoders, and those of its artifacts."""
    made: dict[str, ArtifactDecoder] = {"ours, float32": TorchDecoder(trained.model),
                                        "ours, bf16": Autocast(trained.model)}
    for name, quantize in ARTIFACTS:
        place = folder / f"{trained.folder.name}-{name}-{quantize}"
        if not place.exists():
            export_model(trained, place, get_format(name), quantize, sample)
        made[f"{name}, {'float32' if quantize == 'none' else quantize}"] = open_artifact(place)[1]
    return made


def seconds(decoder: ArtifactDecoder, trained: Checkpoint, batches: list[Rows]) -> float:
    """CPU time of decoding ``batches``."""
    most = [length_limits(trained.model, padded(rows)).tolist() for rows in batches]
    began = time.process_time()
    for rows, limit in zip(batches, most):
        decoder.greedy(rows, limit)
    return time.process_time() - began


def padded(rows: Rows) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


def scored(decoder: ArtifactDecoder, trained: Checkpoint, sample: VerificationSample) -> float:
    task = TASKS[trained.task]
    rows = source_rows(sample.split)
    ids = decoder.greedy(rows, length_limits(trained.model, padded(rows)).tolist())
    return task.score(list(trained.tokenizer.decode(ids)), sample.texts,
                      sample.spec)[task.main_metric]


def source_rows(split: Split) -> Rows:
    """Source ids as an encoder reads them."""
    return [[*map(int, row), EOS] for row in split.source_ids]


def table(took: dict[str, list[tuple[float, float]]], said: dict[str, float], sentences: int,
          singles: int) -> Table:
    made = Table("decoder", "sentences / CPU-s, batch 64", "times ours",
                 "CPU-ms a sentence, batch 1", "times ours", "BLEU", box=None)
    first: list[float] = []
    for name, rounds in took.items():
        many = [sentences / a for a, _ in rounds[1:]]
        one = [1000 * b / singles for _, b in rounds[1:]]
        first = first or [median(many), median(one)]
        made.add_row(name, spread(many), f"{median(many) / first[0]:.2f}", spread(one),
                     f"{first[1] / median(one):.2f}", f"{said[name]:.2f}")
    return made


def spread(values: list[float]) -> str:
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    main()
