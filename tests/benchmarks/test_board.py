"""The statistics of the board: BLEU of summed counts, and the paired bootstrap."""

import json
import random

import numpy as np
import pytest

from benchmarks.board import bleu, bleu_statistics, paired_bootstrap
from scalesearch.tasks.translation import tokenized_bleu
from tools import results

REFERENCES = [" ".join(random.Random(line).choices("abcdef", k=12)) for line in range(80)]


def with_errors(share: float, seed: int) -> list[str]:
    """References in which a share of the words is replaced."""
    generator = random.Random(seed)
    return [" ".join("x" if generator.random() < share else word for word in line.split())
            for line in REFERENCES]


@pytest.mark.parametrize("seed", range(3))
def test_bleu_of_summed_statistics_equals_sacrebleu(seed):
    hypotheses = [line[:-2 * seed or None] for line in with_errors(0.2, seed)]
    score = bleu(bleu_statistics(hypotheses, REFERENCES).sum(0))
    assert score == pytest.approx(tokenized_bleu(hypotheses, [REFERENCES]))


def test_bootstrap_distinguishes_better_from_equal_rows():
    def row(share, seeds):
        return [bleu_statistics(with_errors(share, seed), REFERENCES) for seed in seeds]

    good, equally_good, bad = (np.stack(row(share, seeds)) for share, seeds in
                               ((0.1, (1, 2, 3)), (0.1, (4, 5, 6)), (0.2, (7, 8, 9))))
    difference, p_value = paired_bootstrap(bad, good, seed=0)
    assert difference > 0
    assert p_value < 0.05
    assert paired_bootstrap(good, equally_good, seed=0)[1] > 0.05
    assert paired_bootstrap(good, good, seed=0)[0] == 0


def test_best_row_within_each_limit_is_named(tmp_path, monkeypatch):
    def row(params, int8_bytes, validation):
        scores = {metric: [40.0, 41.0, 42.0] for metric in ("tokenized_bleu", "bleu", "chrf")}
        return {"method": "search", "command": "scalesearch study run x", "params": params,
                "int8_bytes": int8_bytes, "validation_bleu": [validation] * 3,
                "tests": {"test_2016_flickr": scores, "test_2017_flickr": scores}}

    rows = {"tiny": row(400_000, 900_000, 20.0), "better": row(450_000, 950_000, 21.0)}
    board = tmp_path / "board.json"
    board.write_text(json.dumps(rows))
    monkeypatch.setattr(results, "BOARD", board)
    lines = {line.split("`")[1]: line
             for line in results.board_table(results.load_results()).splitlines()[2:]}
    assert "| 0.5M, 1 MB |" in lines["better"] and "| – |" in lines["tiny"]
    assert "41.00 ± 1.69 | 41.00 ± 1.69 | 41.00 ± 1.69" in lines["tiny"]
