"""Predicted and measured losses of random combinations, without and after fine-tuning.

    python additivity.py STUDY OUT --combinations 30 --share 0.2
    scalesearch study audit OUT/table.csv --proxies --metric tuned.loss_per_char

STUDY is the folder of a finished compression study. Each combination is fine-tuned with the data
and the recipe of the study, for a share of the parent's updates; the same command resumes. The
table has a row per combination: params, and the validation loss, predicted, measured before and
measured after fine-tuning, in nats per character.
"""

import argparse
from pathlib import Path

import pandas as pd

import scalesearch as ss
from scalesearch.compression.alternatives import random_combinations
from scalesearch.compression.front import BLOCKS_FOLDER, read_library
from scalesearch.compression.library import measure_combinations, write_combination
from scalesearch.data import default_cache, load_corpus
from scalesearch.studies.config.reader import read_study
from scalesearch.training import Result
from scalesearch.training.checkpoint import read_checkpoint

SEED = 101  # of the combinations; those of the study's own checks have the study's seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--combinations", type=int, default=30)
    parser.add_argument("--share", type=float, default=0.2, help="of the parent's updates")
    options = parser.parse_args()
    spec = read_study(options.study / "study.yaml", out=options.study)
    parent, library = read_library(options.study)
    blocks = options.study / BLOCKS_FOLDER
    parent_folder = options.study / "teacher"
    checkpoint = read_checkpoint(parent_folder)
    parent_result = Result.read(parent_folder)
    assert parent_result is not None, "the study is finished"
    updates = round(options.share * parent_result.recipe["steps"])
    recipe = spec.recipe.replace(steps=updates)
    combinations = random_combinations(parent, library.alternatives, options.combinations, SEED)
    corpus = load_corpus(spec.data.replace(distilled=None, mix_distilled=False), default_cache())
    measured = measure_combinations(parent, checkpoint.model, corpus, combinations, blocks,
                                    lambda done, total: None)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, combination in enumerate(measured.combinations):
        folder = options.out / f"{number:02}"
        architecture = parent.assemble(combination.alternatives)
        write_combination(parent, parent_folder, checkpoint.model.state_dict(),
                          combination.alternatives, blocks, folder / "start",
                          checkpoint.tokenizer.vocab_size)
        result = ss.train(architecture, spec.data, recipe, folder / "tuned", seed=spec.seed,
                          initial_model=folder / "start").result
        assert result is not None, "training is complete"
        rows.append({"params.total": result.n_params,
                     "predicted.loss": library.parent_loss
                     + library.predicted_rise(combination.alternatives),
                     "untuned.loss": library.parent_loss + combination.rise,
                     "tuned.loss_per_char": result.metrics["validation_loss_per_char"],
                     "cpu_seconds": result.total_cpu_seconds})
        pd.DataFrame(rows).to_csv(options.out / "table.csv", index=False)
        print(f"{number + 1} of {len(combinations)}: {rows[-1]}", flush=True)


if __name__ == "__main__":
    main()
