"""A study resumed from any prefix of its log ends as without an interruption."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.executors.worker import rung_file
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State
from tests.studies.engine.test_driver import trained
from tests.studies.engine.test_promotion import RUNGS, rung_shares, work
from tests.studies.fakes import architecture_of, make_driver, make_plan

INSIDE = {"width": 16, "depth": 2, "kind": "plain"}
OUTSIDE = {"width": 9, "depth": 3, "kind": "plain"}
PLAN = make_plan(4, most=3000, rungs=RUNGS, seeds=Seeds(max_per_candidate=2, extra_runs=2),
                 references=(FixedArchitecture("inside", architecture_of(INSIDE), INSIDE),
                             FixedArchitecture("outside", architecture_of(OUTSIDE))))


def driver_of(folder):
    return make_driver(folder, PLAN, work, kind="local", storage=False)


def outcome(folder):
    """Trials of a study, without attempts and times, which an interruption may change."""
    return [trial.replace(attempts=0, crashes=0, wall_seconds=None, ended_at=None)
            for trial in StudyDir(folder).load().trials]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    driver_of(folder).run()
    return folder


def cut(whole, folder, lines, kept):
    """Copy the folder as a crash after ``lines`` lines of the log leaves it.

    ``kept``: the worker had finished.
    """
    shutil.copytree(whole, folder)
    log = StudyDir(folder).log
    log.file.write_bytes(b"".join([*log.lines()][:lines]))
    trials = {trial.folder: trial for trial in StudyDir(folder).load().trials}
    for place in folder.glob("trials/*"):
        trial = trials.get(place.name)
        if trial is None:
            shutil.rmtree(place)
        elif trial.state in (State.PENDING, State.PAUSED):
            undo(place, len(trial.rungs) + (kept and trial.state == State.PENDING))


def undo(place: Path, steps):
    """Delete files that the worker of a trial wrote after its first ``steps`` rungs."""
    for name in ("record.json", *(["result.json", "trained"] if steps <= RUNGS.n_pauses else ())):
        (place / name).unlink(missing_ok=True)
    for rung in range(steps, RUNGS.n_pauses):
        (place / rung_file(rung)).unlink(missing_ok=True)
    if (place / "paused").exists():
        (place / "paused").write_text(
            "".join(line + "\n" for line in (place / "paused").read_text().split()[:steps]))


@pytest.mark.full
@settings(max_examples=25)
@given(st.data())
def test_any_prefix_of_the_log_resumes_to_same_result(whole, tmp_path_factory, data):
    events = len([*StudyDir(whole).log.lines()])
    folder = tmp_path_factory.mktemp("cut") / "study"
    cut(whole, folder, data.draw(st.integers(0, events), "events"),
        data.draw(st.booleans(), "the worker was done"))
    torn = data.draw(st.binary(max_size=9).filter(lambda some: b"\n" not in some), "half a line")
    with (folder / "events.jsonl").open("ab") as log:
        log.write(torn)
    driver_of(folder).run()
    assert outcome(folder) == outcome(whole)
    assert trained(folder) == trained(whole) and rung_shares(folder) == rung_shares(whole)
    assert (folder / "events.torn").exists() == bool(torn)
