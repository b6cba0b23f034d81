"""Damaged study folders: commands report or ignore the damage, and repair keeps valid data."""

import json
import os
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scalesearch.cli.study.group import command
from scalesearch.errors import UserError
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.engine.setup import open_study
from scalesearch.studies.monitor.heartbeat import FINISHED, RUNNING, Owner
from scalesearch.studies.results.publish import front_parts
from scalesearch.studies.results.repair import repair
from scalesearch.studies.results.results import load_results
from scalesearch.studies.trials.event_log import EventLog
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State
from tests.errors import refuses
from tests.mutated import place_something_else
from tests.studies.engine.test_promotion import RUNGS, work
from tests.studies.event_study import EventStudy
from tests.studies.fakes import make_driver, make_plan

PLAN = make_plan(5, rungs=RUNGS, seeds=Seeds(max_per_candidate=2, extra_runs=2))
READING = (["status"], ["status", "--json"], ["front"], ["front", "--csv", "--all"], ["table"],
           ["best"], ["watch", "--once"])
STRANGE = (None, "word", -1, 1e308, [], {}, [[[]]], True, 10**30, "\ud800", "x" * 1000)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Finished study with one trial whose result was not recorded."""
    folder = tmp_path_factory.mktemp("whole") / "study"
    driver = make_driver(folder, PLAN, work, kind="local", storage=False)
    driver.study.update_meta(rungs=RUNGS, seeds=PLAN.spec.seeds)
    driver.run()
    study = StudyDir(folder).load()
    last = max(study.trials.with_state(State.COMPLETE), key=lambda trial: trial.number)
    lines = [*study.log.lines()]
    study.log.file.write_bytes(b"".join(lines[:-1]))
    place = study.trial_folder(last)
    for name, content in (
            ("lease.json", {"host": "far", "pid": 7, "machine": "m", "started_at": 1.0}),
            ("progress.json", {"type": "update", "share": 0.5, "loss": 3.0, "seconds": 1.0}),
            ("../../owner.json", {"state": "running", "host": "far", "pid": 7, "started_at": 1.0})):
        (place / name).write_text(json.dumps(content))
    return folder


@pytest.fixture
def study(whole, tmp_path):
    return StudyDir(Path(shutil.copytree(whole, tmp_path / "study"))).load()


def finished(folder):
    return {trial.number: trial
            for trial in StudyDir(folder).load().trials.with_state(State.COMPLETE)}


def swap(lines):
    lines[1], lines[2] = lines[2], lines[1]


@pytest.mark.parametrize("change", [
    {"values": None}, {"values": {"bleu": 99.0, "params.total": 1}}, {"costs": {}},
    {"costs": None}, {"params": {}}, {"architecture": "0" * 12}, {"state": "failed"},
    {"trial": 77}, {"config": None}, {"config": "x"}, {"label": "x"}, {"recipe_params": "x"},
    {"origin": None}, {"seconds": None}, {"seconds": "x"}, {"metrics": None}, {"curve": "x"}],
    ids=str)
def test_record_that_differs_from_the_log_is_named_and_does_not_change_the_front(study, change):
    front = load_results(study.folder).front[["trial", *study.meta.directions]]
    best = int(front["trial"].iloc[0])
    file = study.trial_folder(study.trials[best]) / "record.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    results = load_results(study.folder)
    assert results.trials_without_record == [best]
    assert results.front[["trial", *study.meta.directions]].equals(front)
    for options in ([], ["--json"], ["--csv"]):
        done = CliRunner().invoke(command, ["front", str(study.folder), *options])
        assert done.exit_code == 0 and f"trial {best}" in done.output, done.output


def test_log_that_was_cut_between_events_is_named(study, monkeypatch):
    owner = Owner(FINISHED)
    monkeypatch.setattr("scalesearch.studies.results.results.read_owner", lambda _: owner)
    lines = [*study.log.lines()]
    recorded = set(study.folder.glob("trials/*/record.json"))
    for count in range(len(lines)):
        study.log.file.write_bytes(b"".join(lines[:count]))
        trials = StudyDir(study.folder).load().trials
        ended = {study.folder / "trials" / trial.folder / "record.json"
                 for trial in trials.with_state(State.COMPLETE, State.FAILED)}
        results = load_results(study.folder)
        lost = recorded - ended
        assert results.records_without_event == sorted(file.parent.name for file in lost)
        assert bool(lost) == any("event log lacks" in str(part) for part in front_parts(results))
        if {file.parent.name for file in recorded} - {trial.folder for trial in trials}:
            with refuses("log-damaged", "study repair"):
                open_study(SimpleNamespace(out=study.folder), None, None)
        else:
            StudyDir(study.folder).load().check_complete()
        assert bool(lost) == any("event log lacks" in line for line in results.warnings())
    study.log.file.unlink()
    assert len(load_results(study.folder).records_without_event) == len(recorded)
    # while a process runs the study, records may be newer than the log that was read
    owner = Owner(RUNNING)
    assert not any("event log lacks" in line for line in load_results(study.folder).warnings())


def test_repair_as_json(study, tmp_path):
    words = ["repair", str(study.folder), "--to", str(tmp_path / "repaired"), "--json"]
    report = json.loads(CliRunner().invoke(command, words, catch_exceptions=False).stdout)
    assert report["left"] == [] and (tmp_path / "repaired" / "events.jsonl").exists()


def test_repair_names_what_it_cannot_copy(study, tmp_path):
    trial = next(study.folder.glob("trials/*"))
    os.mkfifo(trial / "pipe")
    (trial / "link").symlink_to(tmp_path / "missing")
    repaired = repair(study.folder, tmp_path / "repaired")
    places = {str(path.relative_to(study.folder)) for path in (trial / "pipe", trial / "link")}
    assert {line.partition(":")[0] for line in repaired.left} == places
    study.log.file.unlink()
    os.mkfifo(study.log.file)
    with pytest.raises(OSError, match=r"events\.jsonl"):
        repair(study.folder, tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("damage", "place"),
    [(lambda lines: lines.pop(1), 2), (swap, 2), (lambda lines: lines.insert(3, lines[2]), 4),
     (lambda lines: lines.extend(list(lines)), None),
     (lambda lines: lines.__setitem__(2, b"null\n"), 3),
     (lambda lines: lines.__setitem__(2, lines[2].replace(b'"trial": ', b'"trial": 1', 1)), 3)],
    ids=["lost", "swapped", "doubled line", "doubled log", "null", "changed"])
def test_damaged_log_is_reported_with_line_and_repaired(study, damage, place):
    before_damage = finished(study.folder)
    lines = [*study.log.lines()]
    place = place or len(lines) + 1
    damage(lines)
    study.log.file.write_bytes(b"".join(lines))
    with refuses("log-damaged", f"events.jsonl:{place}:", "scalesearch study repair"):
        StudyDir(study.folder).load()
    before = {path: path.read_bytes() for path in study.folder.rglob("*") if path.is_file()}
    repaired = repair(study.folder, study.folder.with_name("again"))
    assert {path: path.read_bytes() for path in study.folder.rglob("*") if path.is_file()} == before
    assert damage is swap or any("events.jsonl" in line for line in repaired.lost)
    again = finished(Path(repaired.folder))
    assert {number: again[number].values for number in before_damage} == {
        number: trial.values for number, trial in before_damage.items()}
    with refuses("already-exists"):
        repair(study.folder, study.folder.with_name("again"))


def test_lost_events_and_records_are_restored(study):
    first, second, *_ = finished(study.folder).values()
    key = b'"trial": %d,' % first.number
    study.log.file.write_bytes(b"".join(line for line in study.log.lines() if key not in line))
    (study.trial_folder(second) / "record.json").write_text("{")
    repaired = repair(study.folder, study.folder.with_name("again"))
    again = StudyDir(Path(repaired.folder)).load()
    assert again.trials[
        first.number].values == first.values and again.record(second)["values"] == second.values
    assert {line.partition(":")[0] for line in repaired.saved} >= {
        f"trial {first.number}, complete", f"the record of trial {second.number}"}
    assert make_driver(Path(repaired.folder), PLAN, work, kind="local", storage=False).run()


def test_duplicates_of_lost_trial_are_removed(tmp_path):
    event_study = EventStudy(tmp_path / "study")
    event_study.propose(0).end(0, 5).propose(1).propose(2, state=State.DUPLICATE, original=1)
    lines = [*event_study.study.log.lines()]
    kept = [line for line in lines if b'"trial": 1,' not in line and b'"number": 1,' not in line]
    event_study.study.log.file.write_bytes(b"".join(kept))
    lost = repair(event_study.study.folder, tmp_path / "whole").lost
    assert [trial.number for trial in StudyDir(tmp_path / "whole").load().trials] == [0]
    assert any("trial 2" in line for line in lost)


def test_finished_trial_without_folder_is_reported(study):
    lost = next(iter(finished(study.folder).values()))
    shutil.rmtree(study.trial_folder(lost))
    for verb in (["front"], ["front", "--latex"], ["status"]):
        output = CliRunner().invoke(command, [*verb, str(study.folder)],
                                    catch_exceptions=False).output
        words = " ".join(output.split())
        assert f"trial {lost.number}" in words and "Missing or damaged record" in words, verb
    rows = CliRunner().invoke(command, ["front", str(study.folder), "--all", "--json"],
                              catch_exceptions=False).stdout
    assert [row["trial"] for row in json.loads(rows) if row["lost"]] == [lost.number]


def test_trial_with_damaged_result_is_trained_again(tmp_path):
    driver = make_driver(tmp_path, make_plan(2), storage=False)
    driver.submit_due()
    driver.runner.poll(0.1)
    (trial,) = driver.trials.with_state(State.PENDING)
    (driver.study.trial_folder(trial) / "result.json").write_text(
        '{"state": "complete", "metrics": 3}')
    again = make_driver(tmp_path, make_plan(2), storage=False)
    assert again.run() == "2 candidates trained" and again.trials[trial.number].crashes == 1
    assert (again.study.trial_folder(trial) / "result.damaged").exists()


# -- by chance


def spoil(folder, rng):
    """Damage one file of the study in a random way."""
    files = sorted(path
                   for path in folder.rglob("*")
                   if path.suffix in (".json", ".jsonl", ".yaml") and path.is_file())
    # each file name has the same probability
    named = {path.name: path for path in rng.sample(files, len(files))}
    file = named[rng.choice(sorted(named))]
    data = file.read_bytes()
    match rng.randrange(9):
        case 0:
            index = rng.randrange(len(data) or 1)
            file.write_bytes(data[:index] + bytes([rng.randrange(256)]) + data[index + 1 :])
        case 1:
            file.write_bytes(data[: rng.randrange(len(data) + 1)])
        case 2:
            file.unlink()
        case 3:
            file.write_bytes(rng.choice([b"", b"null", b"[" * 3000, b"\xff\xfe", b"{}", b"[1, 2]",
                                         data + data]))
        case 4:
            lines = data.splitlines(keepends=True) or [b""]
            i = rng.randrange(len(lines))
            j = rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], rng.choice([lines[i], lines[j], b""])
            file.write_bytes(b"".join(lines))
        case 5:
            place_something_else(file, rng)
        case 6:
            index = rng.randrange(len(data) + 1)
            file.write_bytes(data[:index] + b"\xff" + data[index:])
        case _:
            replace_values(file, rng)
    return file


def replace_values(file, rng):
    """Put invalid values into a JSON file, at the top level or one level below."""
    if file.suffix != ".json":
        return
    try:
        facts = json.loads(file.read_text())
    except ValueError:
        facts = None
    if not isinstance(facts, dict) or not facts:  # damaged before
        return
    inside = [facts, *(value for value in facts.values() if isinstance(value, dict) and value)]
    chosen = rng.choice(inside)
    chosen[rng.choice(sorted(chosen))] = rng.choice(STRANGE)
    file.write_text(json.dumps(facts))


def hold(whole, folder, seed):
    """Run all commands on a damaged copy: no traceback, and no finished trial is lost."""
    rng = random.Random(seed)
    shutil.copytree(whole, folder)
    before_damage = finished(folder)
    spoiled = [spoil(folder, rng) for _ in range(rng.choice([1, 1, 1, 2, 4]))]
    for verb in READING:
        result = CliRunner().invoke(command, [*verb, str(folder)])
        # the command prints an OSError with the name of a file as a message
        assert result.exit_code in (0, 1) and (isinstance(result.exception, UserError | None) or (
            isinstance(result.exception, OSError) and result.exception.filename)), (verb, spoiled)
    again = folder.with_name("again")
    try:
        repair(folder, again)
    except UserError as error:  # study.json is damaged
        assert error.code in ("not-a-study", "no-study", "other-format"), error
        return
    except OSError as error:
        assert Path(error.filename).name in ("study.json", "events.jsonl")
        return
    touched = {path.parent.name for path in spoiled}
    kept = finished(again)
    assert all(kept[number].values == trial.values
               for number, trial in before_damage.items() if trial.folder not in touched)
    try:
        make_driver(again, PLAN, work, kind="local", storage=False).run()
    except UserError as error:
        assert error.code == "file-damaged", error


@pytest.mark.full
@settings(max_examples=12)
@given(seed=st.integers(0, 10**6))
@example(seed=469181)  # a folder in the place of a record
def test_damaged_folders_cause_no_traceback_and_no_loss(whole, tmp_path_factory, seed):
    hold(whole, tmp_path_factory.mktemp("damaged") / "study", seed)


@pytest.mark.slow
def test_five_hundred_damaged_folders(whole, tmp_path):
    for seed in range(500):
        hold(whole, tmp_path / str(seed) / "study", seed)
        shutil.rmtree(tmp_path / str(seed))


def test_events_have_line_numbers(study):
    assert [event.line
            for event in EventLog(study.log.file)] == list(range(1, len([*study.log.lines()]) + 1))
