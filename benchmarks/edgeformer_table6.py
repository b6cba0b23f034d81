"""EdgeFormer's Table 6 here: bytes on disk, packed, peak memory and latency of its artifacts, float and int8.

    python benchmarks/edgeformer_table6.py --data FILE [--vocab 2000 8000] [--rounds 20] [--out
    runs/table6]
        [--trained FOLDER FOLDER]

The architecture at its printed size (Adapter-LA, width 512), with random weights: none of these
depends on what was learned. FILE gives the tokenizers, one for each --vocab. Latency is of one
sentence of 30 source and 30 target tokens, greedy, on one pinned core, all artifacts in turn;
memory of a process of its own that opens the artifact and decodes that sentence. Packed is xz, as a
download would be. Printed, for vocabularies of 32k, 8k and 2k on two cores of a Xeon E-2288G by
onnxruntime in int8: 28, 15 and 11 MB as 7-zip archives, 60, 47 and 42 MB of memory at the peak.
BLEU depends on training: a second table has BLEU of the training runs in --trained, of a smaller
EdgeFormer, exported in the same ways and verified on their validation text.
"""

import argparse
import io
import lzma
import shutil
import tarfile
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scalesearch.cost.latency_model import DecodingSetup
from scalesearch.data import DataSpec, load_corpus
from scalesearch.export.base import ArtifactDecoder, get_format
from scalesearch.export.export import (
    Artifact,
    VerificationSample,
    export_model,
    open_artifact,
    write_description,
)
from scalesearch.export.latency import (
    LatencyStatistics,
    describe_device,
    measure_peak_memory,
    measure_rounds,
    pinned_threads,
)
from scalesearch.files import read_json
from scalesearch.library import find_file
from scalesearch.nn import build_model
from scalesearch.spaces import read_space
from scalesearch.training import Recipe
from scalesearch.training.checkpoint import DATA_FILE, WEIGHTS_FILE, read_checkpoint
from scalesearch.training.checkpoint import write_description as describe_training
from scalesearch.training.input_files import read_data_spec
from scalesearch.training.updates.averaging import write_weights

KINDS = [("ctranslate2", "none"), ("ctranslate2", "int8"), ("onnx", "none"), ("onnx", "int8")]
MB = 1e6


@dataclass(frozen=True)
class Row:
    """An artifact: its folder, and what was written into it."""

    vocab: int
    folder: Path
    artifact: Artifact

    @property
    def packed(self) -> int:
        """Bytes of its files in one xz archive."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for name in self.artifact.bytes:
                archive.add(self.folder / name, name)
        return len(lzma.compress(content.getvalue()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="builtin", help="a data file, or builtin")
    parser.add_argument("--vocab", type=int, nargs="+", default=[2000, 8000])
    parser.add_argument("--architecture", default="reference/edgeformer-adapter")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--trained", type=Path, nargs="*", default=[],
                        help="training runs to report BLEU of")
    parser.add_argument("--out", type=Path, default=Path("runs/table6"))
    options = parser.parse_args()
    rows = [export_random(options, vocab, *kind) for vocab in options.vocab for kind in KINDS]
    setup = DecodingSetup(batch=1, beam=1, source=30, target=30, threads=1)
    with pinned_threads(1):
        decoders: dict[str, ArtifactDecoder] = {
            str(row.folder): open_artifact(row.folder)[1] for row in rows}
        words = {str(row.folder): row.vocab for row in rows}
        times = list(measure_rounds(decoders, words, setup, options.rounds))
    table = Table("vocab", "artifact", "MB", "xz MB", "peak MB", "own MB", "p50 ms", "CPU ms", "",
                 box=None)
    for row in rows:
        measured = LatencyStatistics.from_times([latencies[str(row.folder)] for latencies in times])
        memory = measure_peak_memory(row.folder, setup)
        table.add_row(str(row.vocab), f"{row.artifact.format} {row.artifact.quantization}",
                     f"{sum(row.artifact.bytes.values()) / MB:.2f}", f"{row.packed / MB:.2f}",
                     f"{memory['peak'] / MB:.0f}", f"{memory['own'] / MB:.1f}", f"{measured.p50:.1f}",
                     f"{measured.cpu:.1f}", "unsteady" * measured.is_unstable)
    console = Console(width=120)
    console.print(table)
    console.print(f"{options.architecture}, random weights; {setup}; {options.rounds} rounds; "
                  f"{describe_device(1)['processor']}")
    if options.trained:
        console.print(scores(options))


def scores(options: argparse.Namespace) -> Table:
    """Return BLEU of training runs and their artifacts, greedy, on their validation text."""
    table = Table("training", "vocab", "artifact", "MB", "BLEU of the model", "of the artifact",
                 "different", box=None)
    for trained, (name, quantize) in product(options.trained, KINDS):
        model = read_checkpoint(trained)
        folder = options.out / f"{trained.name}-{name}-{quantize}"
        sample = VerificationSample.from_data(
            model,
            DataSpec.from_mapping(read_json(trained / DATA_FILE,
                                            dict)["spec"]).with_absolute_paths(), 1000)
        shutil.rmtree(folder, ignore_errors=True)
        artifact = export_model(model, folder, get_format(name), quantize, sample)
        measured = artifact.verification
        mine = measured["float" if quantize == "none" else "quantized"]
        table.add_row(trained.name, str(model.tokenizer.vocab_size), f"{name} {quantize}",
                     f"{sum(artifact.bytes.values()) / MB:.2f}", f"{measured['model']['bleu']:.2f}",
                     f"{mine['bleu']:.2f}", f"{mine['different']} of {measured['sentences']}")
    return table


def export_random(options: argparse.Namespace, vocab: int, name: str, quantize: str) -> Row:
    """An artifact of the architecture with random weights; the trained folder is kept."""
    trained = options.out / f"random-{vocab}"
    folder = options.out / f"{vocab}-{name}-{quantize}"
    if not trained.exists():
        corpus = load_corpus(read_data_spec(options.data)[0].replace(vocab=vocab))
        architecture = read_space(find_file(options.architecture, "spaces")).single_architecture()
        describe_training(trained, architecture, corpus, Recipe(steps=1))
        write_weights(trained / WEIGHTS_FILE,
                      build_model(architecture.block,
                                  vocab=corpus.tokenizer.vocab_size).state_dict())
    model = read_checkpoint(trained)
    format = get_format(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    format.write(model, folder, quantize)
    return Row(model.tokenizer.vocab_size, folder,
               write_description(model, folder, format, quantize))


if __name__ == "__main__":
    main()
