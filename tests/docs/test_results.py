"""Numbers of the README and of the results pages equal the committed results."""

import re
import statistics
from statistics import mean
from typing import Any

import pytest

from tests.docs.blocks import ROOT
from tools.results import (
    BOARD_TEST,
    PAGES,
    board_rows,
    load_results,
    mean_regret,
    table_regret,
    updated,
)

T_3_SEEDS = 2.92  # half width of a 90 % interval in standard errors, for 3 seeds
RESULTS = load_results()
FLAGSHIP = RESULTS["flagship"]
README = "README.md"
INDEX = "docs/results/index.md"
BENCHMARKS = "docs/results/benchmarks.md"
FLAGSHIP_PAGE = "docs/results/flagship.md"
PAPERS = "docs/results/papers.md"

BOARD = board_rows(RESULTS)


def board_scores(name: str) -> list[float]:
    """Scores of a row of the board, one per seed."""
    scores: list[float] = BOARD[name]["tests"][BOARD_TEST]["tokenized_bleu"]
    return scores


# Page, text around a number, and the value that {} stands for. A page may leave out a fact of the
# README's block, but a number that it does state has to be this one.
FACTS: list[tuple[str, str, Any]] = [
    (INDEX, "{} of 214 sizes", RESULTS["reported_costs"]["equal"]
     + RESULTS["reported_costs"]["rounding"]),
    (INDEX, "10 full-budget runs, {:.1f} %", mean_regret(RESULTS, "bayes + rungs", 10)[0]),
    (INDEX, "BoTorch {:.1f} %", mean_regret(RESULTS, "botorch", 10)[0]),
    (INDEX, "TPE {:.1f} %", mean_regret(RESULTS, "tpe", 10)[0]),
    (INDEX, "{:.1f} BLEU on the test set", mean(board_scores("factorised-1.14m"))),
    (INDEX, "test set with {:,} params", BOARD["factorised-1.14m"]["params"]),
    (INDEX, "{:.1f} ± 0.4 tokenized BLEU", FLAGSHIP["plain-1.28m"]["test_mean"]),
    (INDEX, "int8 model of {:.2f} MB", FLAGSHIP["plain-1.28m"]["int8_bytes"] / 1e6),
    (PAPERS, "{} are equal at the reported digits", RESULTS["reported_costs"]["equal"]),
    (PAPERS, "{} agree if rounded", RESULTS["reported_costs"]["rounding"]),
    (BENCHMARKS, "or all | {} |", RESULTS["kills"]["kills"]),
    (BENCHMARKS, "raylet | {} |", RESULTS["kills"]["stops"]),
    (BENCHMARKS, "on table-kinds ({:.1f} and 1.0)",
     table_regret(RESULTS, "table-kinds", "bayes", 20)[0]),
    (FLAGSHIP_PAGE, "{:,} configurations", FLAGSHIP["space_size"]),
    (FLAGSHIP_PAGE, "{:,} have at", FLAGSHIP["space_size_within_1.3m_params"]),
    (FLAGSHIP_PAGE, "{:.0f} % of the MACs", 100 * FLAGSHIP["front"]["conv-1.79m"]["macs_millions"]
     / FLAGSHIP["front"]["transformer-tiny-sizes"]["macs_millions"]),
    (FLAGSHIP_PAGE, "(published) | 2.6M | | | {} |", FLAGSHIP["published"]["test_bleu"]),
]


@pytest.mark.parametrize(("page", "text", "value"), FACTS, ids=lambda value: str(value)[:40])
def test_number_equals_committed_result(page, text, value):
    assert text.format(value) in _words(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_current(page):
    assert updated(page.read_text("utf-8"), RESULTS) == page.read_text(
        "utf-8"), "run `python tools/results.py`"


@pytest.mark.parametrize("model", FLAGSHIP["front"])
def test_row_of_front_equals_its_seeds(model):
    result = FLAGSHIP["front"][model]
    intervals = " | ".join(_interval(result[split]) for split in ("validation_bleu", "test_bleu"))
    assert re.search(rf"{result['params']:,} \|.*{result['int8_bytes']:,} \| {intervals}",
                     _words(FLAGSHIP_PAGE))


@pytest.mark.parametrize("system", RESULTS["toolkits"]["systems"])
def test_training_speeds_equal_measured_ones(system):
    speed = RESULTS["toolkits"]["systems"][system]["training_tokens_per_cpu_second"]
    assert speed is None or f"{speed:,.0f} |" in _words(BENCHMARKS)


def test_tables_of_replays_in_raw_results_equal_committed_ones():
    raw = _words("benchmarks/RESULTS.md")
    for table in RESULTS["replays"]["tables"].values():
        for cells in table["regret"].values():
            row = " | ".join(f"{cell[0]:.2f} ± {cell[1]:.2f}" for cell in cells if cell)
            assert row in raw


def test_all_numbers_of_readme_results_equal_committed_ones():
    """Each number in the section on results is one of these, in this order."""
    section = _words(README).partition("## Results")[2].partition("## How it compares")[0]
    text = re.sub(r"\]\(.*?\)|`.*?`", "", section)  # without links and names
    costs = RESULTS["reported_costs"]
    agreeing = costs["equal"] + costs["rounding"]
    discrepancies = _words("docs/results/discrepancies.md")
    larger, smaller = "factorised-1.14m", "factorised-0.48m"
    published = FLAGSHIP["published"]
    plain = FLAGSHIP["plain-1.28m"]
    assert re.findall(r"\b(?:\d[\d,.]*\d|\d)", text) == [
        str(agreeing), str(costs["numbers"]), str(costs["no_fit"]),
        str(costs["no_fit"] - discrepancies.count("cause unknown")), "10",
        *(f"{mean_regret(RESULTS, search, 10)[0]:.1f}"
          for search in ("bayes + rungs", "bayes", "botorch", "tpe")),
        str(RESULTS["replays"]["seeds"]),
        f"{BOARD[larger]['params']:,}", *_interval(board_scores(larger), 1).split(" ± "),
        f"{BOARD[smaller]['params']:,}", *_interval(board_scores(smaller), 1).split(" ± "),
        f"{published['params_millions']:.1f}", f"{published['test_bleu']:.1f}",
        f"{plain['params'] / 1e6:.2f}", f"{plain['test_mean']:.1f}",
        f"{plain['test_interval']:.1f}", f"{plain['int8_bytes'] / 1e6:.2f}"]


def _words(page: str) -> str:
    return " ".join((ROOT / page).read_text("utf-8").split())


def _interval(seeds: list[float], decimals: int = 2) -> str:
    half_width = T_3_SEEDS * statistics.stdev(seeds) / len(seeds) ** 0.5
    return f"{statistics.mean(seeds):.{decimals}f} ± {half_width:.{decimals}f}"
