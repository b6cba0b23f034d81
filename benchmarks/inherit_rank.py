"""Do previews from inherited weights rank candidates as full trainings do, and better than as short ones from scratch?

    python benchmarks/inherit_rank.py OUT [--steps 300]

One parent and ten neighbours of it on the built-in corpus, each trained in full, for a third from scratch, and for a
third from the parent's weights at the recipe's peak rate and at half of it. Printed: validation losses, and Spearman's
rank correlation of each short training with the full one. Minutes of one CPU; what was stopped goes on.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr

from scalesearch.data import DataSpec, load_corpus
from scalesearch.space.architecture import assemble
from scalesearch.train import Recipe, train

BASE: dict[str, Any] = {
    "model": "encoder-decoder", "width": 32, "norm": "pre", "embedding.tie": "all",
    "embedding.positions": "sinusoidal", "embedding.max_length": 64, "share.norms": "own", "share.biases": "follow",
    "decoder.interleaved": False,
    **{f"{stack}.{name}": value for stack in ("encoder", "decoder") for name, value in
       (("depth", 2), ("heads", 2), ("score_heads", 2), ("head_dim", 8), ("ffn", "relu"), ("ffn.hidden", 64))},
}
CHILDREN: dict[str, dict[str, Any]] = {
    "encoder FFN 64 to 128": {"encoder.ffn.hidden": 128}, "decoder FFN 64 to 16": {"decoder.ffn.hidden": 16},
    "encoder of 3": {"encoder.depth": 3}, "decoder of 3": {"decoder.depth": 3}, "decoder of 1": {"decoder.depth": 1},
    "decoder of one head": {"decoder.heads": 1, "decoder.score_heads": 1},
    "width 48": {"width": 48}, "width 24": {"width": 24}, "encoder of GEGLU": {"encoder.ffn": "geglu"},
    "FFNs shared": {"share.encoder.ffn": "one", "share.decoder.ffn": "one"},
}
RECIPE = {"max_tokens": 256, "dropout": 0.0, "label_smoothing": 0.0, "beam": 1, "average": "none",
          "validate_every": 0, "score_on": "valid"}
RATE = 5e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    torch.set_num_threads(1)
    corpus = load_corpus(DataSpec(builtin="grammar", pairs=4000, vocab=240), given.out / "cache")
    short, parent = given.steps // 3, given.out / "parent"

    def loss(name: str, answers: dict[str, Any], steps: int, rate: float, start: Path | None = None) -> float:
        recipe = Recipe.from_mapping({**RECIPE, "steps": steps, "lr": rate})
        result = train(assemble(BASE | answers), corpus, recipe, given.out / name, start=start)
        return float(result.metrics["valid_loss"])

    loss("parent", {}, given.steps, RATE)
    rows = []
    for name, answers in CHILDREN.items():
        key = name.replace(" ", "-")
        rows.append((loss(f"{key}-full", answers, given.steps, RATE), loss(f"{key}-scratch", answers, short, RATE),
                     *(loss(f"{key}-{rate:g}", answers, short, RATE * rate, parent) for rate in (1.0, 0.5))))
        print(f"{name:24}", *(f"{value:8.4f}" for value in rows[-1]), flush=True)
    full, *others = zip(*rows)
    for name, values in zip(("from scratch", "inherited", "inherited, half the rate"), others):
        print(f"{name:24} Spearman {spearmanr(full, values).statistic:.3f}")


if __name__ == "__main__":
    main()
