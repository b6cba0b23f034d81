"""Snapshots of a study while its folder changes, and their output; no files are changed."""

import json
import os
import random
import time
from dataclasses import replace
from datetime import datetime

import msgspec
import pytest
from click.testing import CliRunner
from scipy.stats import spearmanr

from scalesearch.cli.study.group import command
from scalesearch.files import write_json
from scalesearch.report.table import COST_COLUMNS
from scalesearch.schedule import Rungs
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.objectives import parse_objective
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.executors.worker import ProgressFile
from scalesearch.studies.forecast import FORECAST_FILE, StudyForecast
from scalesearch.studies.monitor.heartbeat import FINISHED, STOPPED
from scalesearch.studies.monitor.render import ChangePrinter
from scalesearch.studies.monitor.running import running_teacher
from scalesearch.studies.monitor.snapshot import StudyWatcher, rung_summaries
from scalesearch.studies.results.results import load_results
from scalesearch.studies.trials.event_log import encode_event
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.study_meta import TeacherMeta
from scalesearch.studies.trials.trial import Rung, State, Trial
from scalesearch.studies.trials.trials import Trials
from scalesearch.training.effort import TRAINING_PARTS, Effort
from tests.errors import refuses
from tests.studies.engine.test_promotion import RUNGS, work
from tests.studies.event_study import EventStudy, rendered
from tests.studies.fakes import META, architecture_of, make_driver, make_plan


def tree(folder):
    """Return the content and the modification time of each file."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
            for path in [folder, *folder.rglob("*")]}


# -- content of snapshots


def test_snapshot_agrees_with_results(tmp_path):
    make_driver(tmp_path, make_plan(8)).run()
    before = tree(tmp_path)
    snapshot = StudyWatcher(tmp_path).snapshot()
    results = load_results(tmp_path)
    assert tree(tmp_path) == before
    assert snapshot.counts["complete"] == 8
    assert snapshot.running == ()
    assert snapshot.front_summary.size == len(results.front)
    assert {row.trial for row in snapshot.front_summary.members} <= set(results.front["trial"])
    assert snapshot.front_summary.hypervolume.value == pytest.approx(results.hypervolume()[0])
    assert list(
        snapshot.front_summary.hypervolume.reference_point.values()) == results.hypervolume()[1]
    assert [row.values["bleu"] for row in snapshot.front_summary.members] == sorted(
        (row.values["bleu"] for row in snapshot.front_summary.members), reverse=True)
    assert json.loads(json.dumps(msgspec.to_builtins(snapshot)))["progress"]["candidates"] == [8.0,
                                                                                               6.0]


def test_reference_point_uses_ineligible_trials(event_study):
    event_study.propose(
        0, origin="reference", label="a", is_in_space=False).end(0, 5, bleu=1.0, params=9000.0)
    event_study.propose(1).end(1, 5, bleu=20.0, params=1000.0).propose(2).end(
        2, 5, bleu=30.0, params=2000.0)
    volume = StudyWatcher(event_study.study.folder).snapshot().front_summary.hypervolume
    assert volume.reference_point == pytest.approx(
        {"bleu": 1 - 0.1 * 29, "params.total": 9000 + 0.1 * 8000})
    assert list(volume.reference_point.values()) == pytest.approx(
        load_results(event_study.study.folder).hypervolume()[1])


@pytest.mark.parametrize(("names", "main"), [
    (("latency", "params.total"), "latency"), (("macs.total", "params.total"), "macs.total"),
    (("chrf", "params.total"), "chrf"),
])
def test_main_objective_without_main_metric(names, main, tmp_path):
    objectives = tuple(parse_objective(name, "max" if name == "chrf" else "min") for name in names)
    event_study = EventStudy(tmp_path, objectives=objectives)
    event_study.propose(0)
    event_study.study.append("ended", 0, state="complete", values=dict.fromkeys(names, 1.0),
                             wall_seconds=1, reason="")
    snapshot = StudyWatcher(event_study.study.folder).snapshot()
    assert (snapshot.front_summary.main_objective, snapshot.front_summary.size) == (main, 1)


def test_latest_change_of_hypervolume(event_study):
    for number, (bleu, params) in enumerate([(10, 1000), (20, 2000), (15, 2500)]):
        event_study.propose(number).end(number, 5, bleu, params)
    volume = StudyWatcher(event_study.study.folder).snapshot().front_summary.hypervolume
    # The reference point is beyond the worst values by a tenth of each range: BLEU 10 - 1, params
    # 2500 + 150.
    assert volume.reference_point == {"bleu": pytest.approx(9), "params.total": pytest.approx(2650)}
    first = (10 - 9) * (2650 - 1000)
    second = (20 - 10) * (2650 - 2000)
    assert volume.value == pytest.approx(first + second) and volume.gain == pytest.approx(second)
    events = [json.loads(line)
              for line in (event_study.study.folder / "events.jsonl").read_text().splitlines()]
    (ended_at,) = [event["time"] for event in events
                   if (event["type"], event["trial"]) == ("ended", 1)]
    assert volume.trial == 1 and volume.ended_at == datetime.fromisoformat(ended_at).timestamp()


def test_front_members_include_both_ends(event_study):
    for number in range(20):
        event_study.propose(number).end(number, 5, bleu=number + 1, params=1000 * (number + 1))
    front = StudyWatcher(event_study.study.folder).snapshot().front_summary
    assert front.size == 20 and len(front.members) == 6
    assert (front.members[0].trial, front.members[-1].trial) == (19, 0)


def test_running_trial_has_progress_and_pace(event_study):
    event_study.propose(0, label="big", origin="reference", is_in_space=False).propose(1)
    folder = event_study.write_worker_files(0, step=100, share=0.25, loss=4.5, seconds=30,
                                            validation={"validation_loss": 4.25})
    snapshot = StudyWatcher(event_study.study.folder).snapshot()
    trained, waiting = snapshot.running
    assert (trained.type, trained.name, trained.step, trained.steps) == (
        "reference", "big", 100, 400)
    assert (trained.loss, trained.validation_loss) == (4.5, 4.25)
    assert trained.seconds_left == pytest.approx(90)
    assert trained.full_run_seconds == pytest.approx(120)
    assert (trained.status, trained.host, trained.params, trained.macs) == (
        "training", "here", 1000, 9000)
    assert (waiting.status, waiting.seconds_left, waiting.type) == ("waiting", None, "candidate")
    event_study.study.append("started", 1, attempt=2)
    running = StudyWatcher(event_study.study.folder).snapshot().running
    assert [trial.attempt for trial in running] == [1, 2]
    os.utime(folder / "lease.json", (1, 1))
    running = StudyWatcher(event_study.study.folder).snapshot().running
    assert "no heartbeat for" in running[0].status_text


def test_trials_of_a_stopped_study_are_interrupted(event_study):
    event_study.propose(0).propose(1)
    folder = event_study.write_worker_files(0, step=100, share=0.25, seconds=30)
    event_study.write_owner(state=STOPPED)
    for times in (None, (1, 1)):  # of a killed worker's last heartbeat
        os.utime(folder / "lease.json", times)
        snapshot = StudyWatcher(event_study.study.folder).snapshot()
        assert [trial.status for trial in snapshot.running] == ["interrupted"] * 2
        assert "no heartbeat" not in rendered(snapshot, 120)


def test_running_trial_has_next_rung(tmp_path):
    event_study = EventStudy(tmp_path, rungs=Rungs((0.1, 0.3, 1.0), 3))
    for number in range(3):
        event_study.propose(number).rung(number, 0, 0.1, 10, loss=3.0 - number)
    event_study.study.append("started", 2, attempt=2)
    event_study.write_worker_files(2, step=60, share=0.15, seconds=15)
    snapshot = StudyWatcher(tmp_path).snapshot()
    (trial,) = snapshot.running
    assert (trial.rung, trial.pause_share, trial.attempt) == (2, 0.3, 1)
    assert trial.seconds_left == pytest.approx(15)
    assert trial.full_run_seconds == pytest.approx(100)
    first, second, end = snapshot.rungs
    assert (first.reached, first.promoted, first.paused, first.best_loss) == (3, 1, 2, 1.0)
    assert (second.reached, second.best_loss, end.reached, end.share) == (0, None, 0, 1.0)
    assert snapshot.progress.done == pytest.approx(0.1 + 0.1 + 0.15)


@pytest.mark.parametrize("metric, direction, sign", [("bleu", "max", -1), ("loss", "min", 1)])
def test_rank_correlation_agrees_with_scipy(metric, direction, sign):
    rng = random.Random(4)
    losses = [rng.choice([1.0, 2.0, 3.0, rng.random()]) for _ in range(20)]
    values = [sign * (loss + rng.random()) for loss in losses]
    meta = replace(META, objectives=(parse_objective(metric, direction),),
                   rungs=Rungs((0.1, 1.0), 2))

    def correlation(n_trials, final_values=values):
        trials = [Trial(number, State.COMPLETE, rungs=(Rung(losses[number]),),
                        values={metric: final_values[number]}) for number in range(n_trials)]
        return rung_summaries(trials, meta)[0].rank_correlation

    expected = spearmanr(losses, values).statistic * sign
    assert correlation(20) == pytest.approx(expected) and expected > 0.5
    assert correlation(4) is None and correlation(9, [2.0] * 9) is None


def test_rung_summaries_of_finished_study(tmp_path):
    driver = make_driver(tmp_path, make_plan(8, rungs=RUNGS), work=work)
    driver.study.update_meta(rungs=RUNGS)
    driver.run()
    rows = StudyWatcher(tmp_path).snapshot().rungs
    trials = StudyDir(tmp_path).load().trials
    assert rows[0].reached == sum(bool(trial.rungs) for trial in trials)
    assert rows[-1].reached == len(trials.with_state(State.COMPLETE))
    assert rows[1].promoted == rows[-1].reached
    assert all(row.reached == row.promoted + row.paused for row in rows[:-1])


def test_teacher_stages(tmp_path):
    event_study = EventStudy(tmp_path, teacher=TeacherMeta("abc"))
    assert StudyWatcher(tmp_path).snapshot().teacher.stage == "waiting"
    update = {"type": "update", "share": 0.25, "eta_seconds": 60}
    translation = {"type": "decode", "done": 3, "total": 4}
    teacher_folder = tmp_path / "teacher"
    for folder, stage, report in ((teacher_folder, "training", update),
                                  (teacher_folder / "corpus", "translating", translation)):
        folder.mkdir()
        (folder / "job.json").write_text("{}")
        (folder / "lease.json").write_text(json.dumps({"host": "here", "pid": 7}))
        (folder / "progress.json").write_text(json.dumps(report))
        teacher = StudyWatcher(tmp_path).snapshot().teacher
        assert (teacher.stage, teacher.share) == (stage, 0.25 if stage == "training" else 0.75)
        assert ("0:01:00 left" if stage == "training" else "3 of 4") in teacher.status_text
    result = teacher_folder / "corpus" / "result.json"
    result.write_text(json.dumps({"state": "complete", "pairs": 5000}))
    teacher = running_teacher(StudyDir(tmp_path).read_meta())
    assert teacher.status_text == "has translated 5,000 sentences"
    result.unlink()
    (teacher_folder / "result.json").write_text(
        json.dumps({"state": "failed", "reason": "diverged"}))
    assert running_teacher(event_study.study).stage == "failed"


def test_progress_keeps_last_validation(tmp_path):
    progress = ProgressFile(tmp_path, every=0.0)
    for facts in ({"type": "validation", "step": 50, "validation_loss": 4.5},
                  {"type": "update", "step": 60, "loss": 4.0}):
        progress(facts)
    assert progress.read().loss == 4.0 and progress.read().validation.validation_loss == 4.5


def test_progress_keeps_times_of_updates_while_scoring(tmp_path):
    progress = ProgressFile(tmp_path, every=0.0)
    progress({"type": "update", "seconds": 5.0, "cpu_seconds": 4.0})
    progress({"type": "decode", "done": 1, "total": 2})
    report = progress.read()
    assert (report.type, report.seconds, report.cpu_seconds) == ("decode", 5.0, 4.0)


def test_time_of_interrupted_trials_is_spent(event_study):
    folder = event_study.study.folder
    forecast = StudyForecast({part: Effort(100.0, 50.0) for part in TRAINING_PARTS}, 400.0, 100.0,
                             300.0, 2.0, 2.0, "measurements")
    write_json(folder / FORECAST_FILE, msgspec.to_builtins(forecast))
    event_study.propose(0)
    event_study.write_worker_files(0, share=0.6, seconds=30.0, cpu_seconds=24.0)
    snapshot = StudyWatcher(folder).snapshot()
    assert snapshot.forecast_status.spent["updates"] == Effort(30.0, 24.0)
    assert snapshot.forecast_status.expected["updates"].cpu_seconds == pytest.approx(2 * 24 / 0.6)
    assert "CPU time: 0:00:24 so far" in rendered(snapshot, 140)
    assert "if resumed" not in rendered(snapshot, 140)
    event_study.write_owner(state=STOPPED)  # both in the line and in the table
    assert rendered(StudyWatcher(folder).snapshot(), 140).count("if resumed") == 2
    event_study.end(0, 60)
    assert StudyWatcher(folder).snapshot().forecast_status.spent["updates"] == Effort()
    event_study.write_owner(state=FINISHED, reason="1 candidate trained", candidates=1,
                            references=0)
    finished = StudyWatcher(folder).snapshot().forecast_status
    assert finished.expected == finished.spent


def test_phases_of_complete_runs_are_averaged(event_study):
    assert StudyWatcher(event_study.study.folder).snapshot().phases == {}
    for number, factor in enumerate((1.0, 3.0)):
        event_study.propose(number)
        event_study.study.append(
            "ended", number, state="complete", values={"bleu": 1.0, "params.total": 1.0},
            phases={"start": factor, "updates": 4 * factor})
    event_study.propose(2, state=State.COMPLETE, values={"bleu": 1.0, "params.total": 1.0},
                        source={"study": "other", "trial": 1}, phases={"updates": 1000.0})
    snapshot = StudyWatcher(event_study.study.folder).snapshot()
    assert snapshot.phases["start"] == 2.0 and snapshot.phases["updates"] == 8.0
    lines = [line.split() for line in rendered(snapshot, 60).splitlines()]
    for row in ("start 2 s (20 %)", "updates 8 s (80 %)", "total 10 s"):
        assert row.split() in lines, "no row breaks on a narrow terminal"


# -- changing folders


def test_incomplete_files_are_read_later(event_study):
    event_study.propose(0)
    folder = event_study.write_worker_files(0, share=0.5)
    (folder / "progress.json").write_text('{"type": "upd')
    whole = event_study.study.log.file.read_bytes()
    last = encode_event({"line": 3, "type": "ended", "trial": 0,
                         "time": "2026-01-01T00:00:00.000+00:00", "state": "complete",
                         "values": {"bleu": 9.0, "params.total": 1000.0}, "wall_seconds": 3.0})
    event_study.study.log.file.write_bytes(whole + last[:40])
    watch = StudyWatcher(event_study.study.folder)
    snapshot = watch.snapshot()
    assert snapshot.running[0].status == "starting"
    assert snapshot.counts["complete"] == 0 and not snapshot.problem
    with event_study.study.log.file.open("ab") as file:
        file.write(last[40:])
    assert watch.snapshot().counts["complete"] == 1


def test_watcher_reads_appended_lines_and_restarts_for_new_log(event_study):
    event_study.propose(0).end(0, 3)
    watch = StudyWatcher(event_study.study.folder)
    watch.snapshot()
    read = watch.follower._offset
    events = watch.study.trials.events
    watch.follower.update()
    assert read == event_study.study.log.file.stat().st_size and watch.study.trials.events == events
    damaged = bytearray(event_study.study.log.file.read_bytes())
    damaged[:9] = b"#" * 9
    # lines that were read before are not read again
    with event_study.study.log.file.open("r+b") as file:
        file.write(damaged)
    event_study.propose(1)
    assert watch.snapshot().counts["pending"] == 1 and watch.follower._offset > read
    event_study.study.log.file.unlink()
    event_study.study.trials = Trials()
    event_study.propose(0)
    snapshot = watch.snapshot()
    assert (snapshot.counts["pending"], snapshot.counts["complete"]) == (1, 0)
    assert snapshot.front_summary.size == 0


def test_damaged_line_is_reported_and_read_again(event_study):
    event_study.propose(0)
    whole = event_study.study.log.file.read_bytes()
    event_study.study.log.file.write_bytes(whole + b"\0\0\0\n")
    watch = StudyWatcher(event_study.study.folder)
    assert "events.jsonl:3: a damaged line" in watch.snapshot().problem and watch.snapshot().counts[
        "pending"] == 1
    with event_study.study.log.file.open("r+b") as file:
        file.truncate(len(whole))
    event_study.end(0, 3)
    snapshot = watch.snapshot()
    assert not snapshot.problem and snapshot.counts["complete"] == 1


def test_missing_study_is_reported(tmp_path, event_study):
    with refuses("no-study"):
        StudyWatcher(tmp_path / "none")
    watch = StudyWatcher(event_study.study.folder)
    (event_study.study.folder / "study.json").write_text("{")
    with refuses("not-a-study", "study.json"):
        watch.snapshot()
    (event_study.study.folder / "study.json").unlink()
    with refuses("no-study"):
        watch.snapshot()


# -- output


@pytest.mark.parametrize("width", [80, 140])
def test_screen_fits_width_and_shows_all_parts(tmp_path, width):
    event_study = EventStudy(tmp_path, rungs=Rungs((0.1, 1.0), 2), seeds=Seeds(2, 3))
    event_study.write_owner(candidates=6, references=1, started_at=time.time() - 65,
                            executor="2 Ray workers on this machine")
    event_study.propose(0, origin="reference", label="small").end(0, 100, bleu=12.5)
    event_study.propose(1).rung(1, 0, 0.1, 12).propose(2, label=None)
    event_study.write_worker_files(2, step=40, share=0.075, loss=5.5, seconds=6)
    event_study.study.append("crashed", 2, attempt=1,
                             reason="the machine " + 60 * "very " + "far away is gone")
    snapshot = StudyWatcher(tmp_path).snapshot()
    text = rendered(snapshot, width, 60)
    assert all(len(line) <= width
               for line in (*text.splitlines(), *rendered(snapshot, width).splitlines()))
    for words in ("running on far, process 1, for 0:01:05", "of 7 full-budget runs · about",
                  "full-budget runs of candidates 0.2 of 6 · references 1 of 1",
                  "40/400" if width == 80 else "40 of 400", "5.500", "best loss", "promoted",
                  "Front so far: 1", "0 small",
                  "12.5", "Hypervolume", "trial 2: its worker died (the machine very", "…"):
        assert words in text
    assert ("here, process 7" in text) == ("  000000000002  " in text) == (width == 140)
    whole = " ".join(rendered(snapshot, width).split())
    assert "far away is gone)" in whole and "…" not in whole
    assert "further seeds of the front 0" in whole


@pytest.mark.parametrize(("config", "unit"),
                         [({"width": 8}, "token"), ({"width": 8, "vocab": 400}, "character")])
def test_rungs_have_the_unit_of_their_losses(tmp_path, config, unit):
    event_study = EventStudy(tmp_path, rungs=Rungs((0.1, 1.0), 2))
    event_study.propose(0, config=config).rung(0, 0, 0.1, 12)
    event_study.write_owner(state=STOPPED)
    text = rendered(StudyWatcher(tmp_path).snapshot(), 80)
    assert f"Rungs, with losses in nats per {unit}" in text
    assert "reached  promoted  paused  failed" in text  # also if the study has stopped
    shown = CliRunner().invoke(command, ["show", str(tmp_path), "0"]).output
    assert f"loss 3 nats per {unit}" in shown


def test_study_without_search_counts_architectures(tmp_path):
    event_study = EventStudy(tmp_path, seeds=Seeds(1, 0, references=2))
    event_study.write_owner(candidates=0, references=2)
    event_study.propose(0, origin="reference", label="small").end(0, 100, bleu=12.5)
    event_study.propose(1, origin="reference", label="large").write_worker_files(
        1, step=40, share=0.1, loss=5.5, seconds=6)
    text = rendered(StudyWatcher(tmp_path).snapshot(), 80)
    assert "architectures 1.1 of 2 · further seeds of architectures 0 of 2" in text
    assert "large" in text and "(reference)" not in text and "references" not in text


def test_small_terminal_hides_running_trials(event_study):
    for number in range(30):
        event_study.propose(number)
    snapshot = StudyWatcher(event_study.study.folder).snapshot()
    text = rendered(snapshot, 100, 30)
    assert "more" in text and len(text.splitlines()) <= 30
    assert "more" not in rendered(snapshot, 100)


def test_lines_report_each_change_once(event_study):
    event_study.write_owner(candidates=8, references=0)
    watch = StudyWatcher(event_study.study.folder)
    printer = ChangePrinter()

    def lines():
        snapshot = watch.snapshot()
        return printer.lines(snapshot, tuple(watch.follower.events))

    event_study.propose(0)
    assert lines()[0].startswith("fake · ") and lines() == []
    event_study.end(0, 5)
    for number in range(1, 8):
        event_study.propose(number).end(number, 5, bleu=number)
    new_lines = lines()
    assert len(new_lines) == 16 and "trial 0 complete after 5 wall seconds" in new_lines[0]
    assert "8 of 8 full-budget runs" in new_lines[-1]
    event_study.write_owner(state=FINISHED, reason="8 candidates trained", candidates=8,
                            references=0)
    assert lines() == ["finished: 8 candidates trained"]
    assert printer.end(watch.snapshot())[1].startswith("trial 0: bleu 10")


def test_narrow_tables_have_whole_cells(tmp_path):
    event_study = EventStudy(tmp_path, rungs=Rungs((0.1, 1.0), 2))
    event_study.write_owner(candidates=6, references=1)
    event_study.propose(0, origin="reference", label="small").end(0, 100, bleu=12.5).propose(1)
    event_study.write_worker_files(1, step=40, share=0.075, loss=5.5, seconds=6)
    snapshot = StudyWatcher(tmp_path).snapshot()
    label = "encoder.ffn: none, decoder.ffn: none"
    trial = replace(snapshot.running[0], type="reference", name=f"1 {label}", step=123_456,
                    steps=200_000, validation_loss=3.25, params=123_456_789, macs=12_345_678_901,
                    seconds_left=36_000.0)
    member = replace(snapshot.front_summary.members[0], label=label)
    values = dict.fromkeys(("bleu", *COST_COLUMNS[:5]), 12_345_678.0)
    front = replace(snapshot.front_summary, members=(replace(member, values=values),) * 2,
                    objectives=dict.fromkeys(values, "min"))
    snapshot = replace(snapshot, running=(trial,), front_summary=front, events=())
    text = rendered(snapshot, 80)
    assert "…" not in text and "val " in text and "123k/200k" in text
    assert all(word in text.split() for word in label.split())
    numbers = rendered(snapshot, 80, 60)
    assert all(word in numbers.split() for word in ("123k/200k", "loss", "rung", "10:00:00"))


def test_references_are_shown_without_front(tmp_path):
    reference = FixedArchitecture("outside",
                                  architecture_of({"width": 16, "depth": 1, "kind": "plain"}))
    make_driver(tmp_path, make_plan(0, references=(reference,))).run()
    text = rendered(StudyWatcher(tmp_path).snapshot(), 100)
    assert "References so far, by bleu" in text and "0 outside" in text
