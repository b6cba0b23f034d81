"""Number of function calls per trial of commands that read a study."""

import cProfile
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.load import load_evaluator, make
from scalesearch.cli.study.group import command

SMALL = 100
LARGE = 400
MOST = {"status": 140, "front": 135}  # calls per additional trial, about one per field


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    evaluate = load_evaluator()
    rng = random.Random(0)
    trials = [evaluate.evaluate(evaluate.space.sample(rng).params) for _ in range(20)]
    folders = {count: tmp_path_factory.mktemp("load") / "load" for count in (SMALL, LARGE)}
    for count, folder in folders.items():
        make(folder, count, [trial for trial in trials if trial.costs], evaluate)
    return folders


def calls(verb: str, folder: Path) -> int:
    """Number of functions called while a command reads a study."""
    profile = cProfile.Profile()
    done = profile.runcall(CliRunner().invoke, command, [verb, str(folder)])
    assert done.exit_code == 0, done.output
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.full
@pytest.mark.parametrize("verb", MOST)
def test_number_of_calls_per_trial_is_bounded(verb, studies, monkeypatch):
    # as for a large study
    monkeypatch.setattr("scalesearch.cli.study.shared.MAX_TRIALS_FOR_PROXIES", 0)
    calls(verb, studies[SMALL])  # imports all modules, which is not counted
    counted = [calls(verb, folder) for folder in studies.values()]
    assert (counted[1] - counted[0]) / (LARGE - SMALL) < MOST[verb]
