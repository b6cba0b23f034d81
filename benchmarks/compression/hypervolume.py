"""Hypervolumes of compression and of a search from scratch, by seed, and their ratio.

    python hypervolume.py RUNS            RUNS/compress-1, RUNS/scratch-1, RUNS/compress-2, …
    python hypervolume.py RUNS --test     also test BLEU of the models on the fronts

Protocol: benchmarks/LOG.md, "compression and a search from scratch at equal compute".
"""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import scalesearch as ss
from scalesearch.compression.front import BLOCKS_FOLDER, SCORES_FILE
from scalesearch.files import read_json
from scalesearch.pareto.front import hypervolume, pareto_front

ARMS = ("compress", "scratch")
DIRECTIONS = ("min", "max")  # params, BLEU
MAX_PARAMS = 0.72e6
REFERENCE_BLEU = (0, 20)
CONFIDENCE = 0.9


def main() -> None:
    runs = Path(sys.argv[1])
    volumes: dict[str, list[list[float]]] = {arm: [] for arm in ARMS}
    for seed in range(1, 10):
        folders = [runs / f"{arm}-{seed}" for arm in ARMS]
        if not all((folder / "front.csv").is_file() for folder in folders):
            for folder in filter(Path.is_dir, folders):
                print(f"{folder.name}: {cpu_seconds(folder):.0f} CPU-seconds so far")
            continue
        for arm, folder in zip(ARMS, folders):
            names, points = read_models(folder)
            volumes[arm].append([hypervolume(points, [MAX_PARAMS, bleu], DIRECTIONS) / MAX_PARAMS
                                 for bleu in REFERENCE_BLEU])
            print(f"{folder.name}: {cpu_seconds(folder):.0f} CPU-seconds, hypervolumes "
                  f"{np.round(volumes[arm][-1], 2)}")
            on_front = pareto_front(points, DIRECTIONS)
            for index in np.argsort(points[:, 0]):
                marks = ["front"] if on_front[index] else []
                if on_front[index] and "--test" in sys.argv:
                    marks.append(f"test {test_bleu(folder / names[index]):.2f}")
                print(f"  {names[index]:24} {points[index, 0]:9,.0f} {points[index, 1]:6.2f} "
                      f"{', '.join(marks)}")
    ratios = np.array(volumes["compress"]) / np.array(volumes["scratch"])
    for column, bleu in enumerate(REFERENCE_BLEU):
        print(f"ratio from {bleu} BLEU: {np.round(ratios[:, column], 3)}, "
              f"{describe_mean(ratios[:, column])}")


def read_models(folder: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Names, and (models, 2) params and validation BLEU, of complete trials and the parent."""
    names: list[str] = []
    points: list[list[float]] = []
    for file in sorted([*folder.glob("teacher/result.json"), *folder.glob("trials/*/result.json")]):
        result = read_json(file, dict[str, Any])
        if result["state"] == "complete":
            names.append(str(file.parent.relative_to(folder)))
            points.append([result["n_params"], result["metrics"]["tokenized_bleu"]])
    return names, np.array(points, float).reshape(-1, 2)


def test_bleu(model: Path) -> float:
    """Tokenized BLEU on the test set, with the decoding of the recipe."""
    prefix = Path(os.environ["MULTI30K"]) / "test_2016_flickr.tok"
    score = ss.load(model).score(f"{prefix}.en", f"{prefix}.de")
    return float(score["tokenized_bleu"]["score"])


def cpu_seconds(folder: Path) -> float:
    """CPU time of all trials and of the parent, its replacements and their scores."""
    total = 0.0
    for run in [*folder.glob("teacher"), *folder.glob("trials/*")]:
        # a paused trial has the result of its last rung
        for name in ("result.json", "rung-1.json", "rung-0.json"):
            if (run / name).is_file():
                total += read_json(run / name, dict[str, Any])["total_cpu_seconds"]
                break
    scores = folder / BLOCKS_FOLDER / SCORES_FILE
    if scores.is_file():
        total += read_json(scores, dict[str, Any])["cpu_seconds"]
    return total


def describe_mean(ratios: NDArray[np.float64]) -> str:
    """Geometric mean with its t-interval."""
    logs = np.log(ratios)
    if len(logs) < 2:
        return f"{np.exp(logs.mean()):.3f} (one seed)"
    low, high = stats.t.interval(CONFIDENCE, len(logs) - 1, logs.mean(), stats.sem(logs))
    return f"mean {np.exp(logs.mean()):.3f} ({np.exp(low):.3f} to {np.exp(high):.3f})"


if __name__ == "__main__":
    main()
