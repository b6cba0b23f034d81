"""Speed of exported models, compared with the decoder of scalesearch.

    python benchmarks/artifacts.py TRAINED [--sentences 256] [--rounds 5] [--artifacts DIRECTORY]

TRAINED is exported as CTranslate2 and ONNX, in float32 and int8. All artifacts and the model itself
(float32, bf16) decode validation sentences greedily, in turns, with one thread. The table has
sentences per CPU-second in batches of 64 and CPU-milliseconds per sentence in batches of one, as
median and range of the rounds, and BLEU.
"""

import argparse
import time
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from scalesearch.blocks.core import EOS
from scalesearch.data import DataSpec
from scalesearch.data.split import Split
from scalesearch.export.base import ArtifactDecoder, get_format
from scalesearch.export.export import VerificationSample, export_model, open_artifact
from scalesearch.export.torch_ import TorchDecoder
from scalesearch.files import read_json
from scalesearch.nn.decode import length_limits
from scalesearch.tasks import TASKS
from scalesearch.training.checkpoint import DATA_FILE, Checkpoint, read_checkpoint

ARTIFACTS = [("ctranslate2", "none"), ("ctranslate2", "int8"), ("onnx", "none"), ("onnx", "int8")]
Rows = list[list[int]]


class Autocast(TorchDecoder):
    """Decoder of scalesearch with products in bf16, as in scoring during training."""

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
    options = parser.parse_args()
    torch.set_num_threads(1)
    trained = read_checkpoint(options.trained)
    spec = DataSpec.from_mapping(read_json(options.trained / DATA_FILE, dict)["spec"])
    sample = VerificationSample.from_data(trained, spec, options.sentences)
    rows = sorted(source_rows(sample.split), key=len)
    decoders = opened(trained, sample, options.artifacts)
    batches = [rows[start:start + 64] for start in range(0, len(rows), 64)]
    singles = [[row] for row in rows[::max(1, len(rows) // options.single)]]
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in decoders}
    # the first warms up
    for _ in track(range(options.rounds + 1), "rounds", console=Console(stderr=True)):
        for name, decoder in decoders.items():
            took[name].append((seconds(decoder, trained, batches),
                               seconds(decoder, trained, singles)))
    scores = {name: scored(decoder, trained, sample) for name, decoder in decoders.items()}
    Console(width=120).print(table(took, scores, len(rows), len(singles)))


def opened(trained: Checkpoint, sample: VerificationSample, folder: Path) -> dict[
        str, ArtifactDecoder]:
    """The model's own decoders, and those of its artifacts."""
    decoders: dict[str, ArtifactDecoder] = {"scalesearch, float32": TorchDecoder(trained.model),
                                        "scalesearch, bf16": Autocast(trained.model)}
    for name, quantize in ARTIFACTS:
        place = folder / f"{trained.folder.name}-{name}-{quantize}"
        if not place.exists():
            export_model(trained, place, get_format(name), quantize, sample)
        decoders[f"{name}, {'float32' if quantize == 'none' else quantize}"] = open_artifact(place)[1]
    return decoders


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


def table(took: dict[str, list[tuple[float, float]]], scores: dict[str, float], sentences: int,
          singles: int) -> Table:
    decoders = Table("decoder", "sentences / CPU-s, batch 64", "ratio",
                 "CPU-ms per sentence, batch 1", "ratio", "BLEU", box=None)
    first: list[float] = []
    for name, rounds in took.items():
        speeds = [sentences / a for a, _ in rounds[1:]]
        latencies = [1000 * b / singles for _, b in rounds[1:]]
        first = first or [median(speeds), median(latencies)]
        decoders.add_row(name, spread(speeds), f"{median(speeds) / first[0]:.2f}", spread(latencies),
                     f"{first[1] / median(latencies):.2f}", f"{scores[name]:.2f}")
    return decoders


def spread(values: list[float]) -> str:
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    main()
