"""What looking at a study costs for each of its trials, in calls of functions: what the load benchmark times."""

import cProfile
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.load import evaluator, make
from scalesearch.cli.study.group import command

SMALL = 100
LARGE = 400
MOST = {"status": 130, "front": 120}  # calls for each further trial; each field of a trial is one


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    given = evaluator()
    rng = random.Random(0)
    billed = [given.evaluate(given.space.sample(rng).params) for _ in range(20)]
    folders = {count: tmp_path_factory.mktemp("load") / "load" for count in (SMALL, LARGE)}
    for count, folder in folders.items():
        make(folder, count, [trial for trial in billed if trial.costs], given)
    return folders


def calls(verb: str, folder: Path) -> int:
    """Functions called while a verb looks at a study."""
    profile = cProfile.Profile()
    done = profile.runcall(CliRunner().invoke, command, [verb, str(folder)])
    assert done.exit_code == 0, done.output
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("verb", MOST)
def test_a_further_trial_costs_few_calls(verb, studies, monkeypatch):
    # as of a large study
    monkeypatch.setattr("scalesearch.cli.study.shared.MAX_TRIALS_FOR_PROXIES", 0)
    calls(verb, studies[SMALL])  # what is imported is imported
    counted = [calls(verb, folder) for folder in studies.values()]
    assert (counted[1] - counted[0]) / (LARGE - SMALL) < MOST[verb]
