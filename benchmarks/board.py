"""Score trained models for the board of Multi30k results (docs/results/board.md).

    python benchmarks/board.py score MODEL... --name NAME --method search --command 'scalesearch …'
    python benchmarks/board.py compare --first MODEL... --second MODEL...

The models of one row have the same architecture and different seeds. ``score`` translates every test set in
``$MULTI30K``, exports the first model as int8, and writes the row to ``benchmarks/board.json``. ``compare`` prints the
difference of the mean tokenized BLEU and its p-value, by a paired bootstrap over seeds and sentences. One thread.
"""

import argparse
import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import scalesearch as ss
from scalesearch.errors import UserError
from scalesearch.files import write_json

BOARD = Path(__file__).with_name("board.json")
TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
METRICS = ("tokenized_bleu", "bleu", "chrf")
METHODS = ("search", "block replacement", "hand")
MIN_SEEDS = 3
N_RESAMPLES = 2000
MAX_ORDER = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command_name", required=True)
    score = commands.add_parser("score")
    score.add_argument("models", nargs="+", type=Path)
    score.add_argument("--name", required=True)
    score.add_argument("--method", required=True, choices=METHODS)
    score.add_argument("--command", required=True, help="command that trains the models")
    compare = commands.add_parser("compare")
    compare.add_argument("--first", nargs="+", type=Path, required=True)
    compare.add_argument("--second", nargs="+", type=Path, required=True)
    compare.add_argument("--test", default=TESTS[0], choices=TESTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command_name == "compare":
        print(comparison(options.first, options.second, options.test))
        return
    row = make_row(options.models) | {"method": options.method, "command": options.command}
    board = json.loads(BOARD.read_text("utf-8")) if BOARD.is_file() else {}
    write_json(BOARD, board | {options.name: row})


def make_row(folders: Sequence[Path]) -> dict[str, Any]:
    """Row of the board: costs, and the scores of each seed."""
    models = [ss.load(folder) for folder in folders]
    architectures = {model.architecture.id for model in models}
    seeds = [model.result.seed for model in models]
    if len(architectures) > 1 or len(set(seeds)) < max(MIN_SEEDS, len(seeds)):
        raise SystemExit(f"a row needs models of one architecture, with {MIN_SEEDS} different seeds "
                         "or more")
    first = models[0]
    costs = first.architecture.cost(source=15, target=15)
    tests: dict[str, dict[str, Any]] = {}
    for name in available_tests():
        scores = [model.score(*split_files(name)) for model in models]
        tests[name] = {metric: [round(score[metric]["score"], 2) for score in scores]
                       for metric in METRICS}
        tests[name]["signature"] = scores[0]["bleu"]["signature"]
    return {"architecture": first.architecture.id, "params": costs["params.total"],
            "macs": costs["macs.total"], "int8_bytes": int8_bytes(first), "seeds": seeds,
            "updates": first.result.steps,
            "cpu_minutes": round(np.mean([model.result.total_cpu_seconds for model in models]) / 60, 1),
            "validation_bleu": [round(model.metrics["tokenized_bleu"], 2) for model in models],
            "tests": tests}


def int8_bytes(model: Any) -> int:
    """Bytes of the CTranslate2 model, or of the ONNX model if CTranslate2 cannot hold it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            exported = model.export("ctranslate2", Path(folder) / "int8", quantize="int8")
        except UserError as error:
            if error.code != "not-exportable":
                raise
            exported = model.export("onnx", Path(folder) / "int8", quantize="int8")
        return sum(exported.artifact.bytes.values())


def comparison(first: Sequence[Path], second: Sequence[Path], test: str) -> str:
    """Difference of two rows, in words."""
    source, target = split_files(test)
    references = target.read_text("utf-8").splitlines()
    statistics = []
    for folders in (first, second):
        translations = [ss.load(folder).translate(source.read_text("utf-8").splitlines())
                        for folder in folders]
        statistics.append(np.stack([bleu_statistics(lines, references) for lines in translations]))
    difference, p_value = paired_bootstrap(*statistics, seed=0)
    return (f"{difference:+.2f} tokenized BLEU on {test}, p = {p_value:.3f} ({len(first)} and "
            f"{len(second)} seeds, {len(references)} sentences)")


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.int64]:
    """(sentences, 10): lengths of hypothesis and reference, then matches and n-grams by order."""
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        words, reference_words = hypothesis.split(), reference.split()
        row = [len(words), len(reference_words)]
        for order in range(1, MAX_ORDER + 1):
            n_grams = _n_grams(words, order)
            row += [(n_grams & _n_grams(reference_words, order)).total(), n_grams.total()]
        rows.append(row)
    return np.array(rows)


def bleu(totals: NDArray[np.int64]) -> NDArray[np.float64]:
    """BLEU of statistics (..., 10) that are summed over sentences; without smoothing."""
    matches, n_grams = totals[..., 2::2], totals[..., 3::2]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_precision = np.log(matches / n_grams).mean(-1)
        log_penalty = np.minimum(0, 1 - totals[..., 1] / totals[..., 0])
    return 100 * np.exp(log_precision + log_penalty)


def paired_bootstrap(first: NDArray[np.int64], second: NDArray[np.int64],
                     seed: int) -> tuple[float, float]:
    """Difference second - first of the mean BLEU over seeds, and its two-sided p-value.

    A resample draws sentences, which are the same for both, and the seeds of each row.

    Args:
        first, second: (seeds, sentences, 10) statistics.
    """
    generator = np.random.default_rng(seed)
    n_sentences = first.shape[1]
    differences = np.empty(N_RESAMPLES)
    for index in range(N_RESAMPLES):
        sentences = generator.integers(n_sentences, size=n_sentences)
        counts = np.bincount(sentences, minlength=n_sentences)
        means = []
        for statistics in (first, second):
            scores = bleu(np.einsum("n,snk->sk", counts, statistics))
            means.append(scores[generator.integers(len(scores), size=len(scores))].mean())
        differences[index] = means[1] - means[0]
    observed = bleu(second.sum(1)).mean() - bleu(first.sum(1)).mean()
    share_opposite = (1 + np.sum(differences * np.sign(observed) <= 0)) / (1 + N_RESAMPLES)
    return float(observed), float(min(1.0, 2 * share_opposite))


def available_tests() -> list[str]:
    """Names of the test sets in ``$MULTI30K``."""
    return [name for name in TESTS if all(file.is_file() for file in split_files(name))]


def split_files(name: str) -> tuple[Path, Path]:
    """Tokenized source and target of a test set."""
    folder = Path(os.environ["MULTI30K"])
    return folder / f"{name}.tok.en", folder / f"{name}.tok.de"


def _n_grams(words: list[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[start:] for start in range(order))))


if __name__ == "__main__":
    main()
