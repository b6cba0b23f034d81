"""A real study by the command line: stopped with two workers at work."""

import json
import signal

import pytest

from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State
from tests.corpora import write_text
from tests.processes import call, ended, start, wait_until
from tests.studies.engine.test_end_to_end import STUDY

MORE = ("--set", "recipe.steps=400", "--set", "recipe.validate_every=100", "--set",
        "recipe.checkpoint_minutes=60")


@pytest.fixture
def folder(tmp_path):
    write_text(tmp_path)
    (tmp_path / "tiny.yaml").write_text(
        STUDY.replace("trials: 2", "trials: 1\nresources: { cpus_per_trial: 0.5 }"))
    return tmp_path


def at_work(folder, process, count):
    """Wait until ``count`` candidates have trained for a while."""
    def trained():
        facts = [json.loads(file.read_text())
                 for file in folder.glob("found/trials/*/progress.json")]
        return sum(fact.get("share", 0) > 0.02 for fact in facts) >= count

    wait_until(trained, process)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("backend", ["pool", pytest.param("ray", marks=pytest.mark.ray)])
def test_signal_saves_both_workers_and_the_study_resumes(folder, backend, number):
    workers = ("--backend", backend, "--workers", "2")
    process = start(folder, "study", "run", "tiny.yaml", *workers, *MORE)
    at_work(folder, process, 2)
    process.send_signal(number)
    status, out, err = ended(process)
    assert status == 128 + number and "Traceback" not in out + err
    assert "scalesearch study run found --resume" in out
    store = StudyDir(folder / "found").load()
    stopped = [store.trial_folder(trial) for trial in store.trials.with_state("pending")]
    assert len(stopped) == 2 and not list(folder.glob("found/trials/*/lease.json"))
    assert all((place / "checkpoint.pt").exists() and not (place / "result.json").exists()
               for place in stopped)
    output = call(folder, "study", "run", "tiny.yaml", "--resume", *workers, *MORE)
    assert "1 candidate and 1 reference trained" in output
    again = StudyDir(folder / "found").load()
    assert len(again.trials.with_state(State.COMPLETE)) == 2  # the reference, and the candidate
    for place in stopped:
        record = json.loads((place / "record.json").read_text())
        assert record["steps"] == 400 and record["attempts"] == 2
