"""Teachers of studies: reading, checks before the start, training, resume and reports."""

import io
import json
import signal
from pathlib import Path

import pytest
from rich.console import Console

from scalesearch.cli.study.run import dry_run_to_json
from scalesearch.errors import UserError
from scalesearch.files import DiskFullError
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.config.sections import TeacherSpec
from scalesearch.studies.engine.corpora import load_corpora
from scalesearch.studies.engine.distillation import find_teacher, report_share, run_teacher
from scalesearch.studies.engine.driver import Driver
from scalesearch.studies.engine.dry_run import DryRun, dry_run
from scalesearch.studies.engine.run import launch
from scalesearch.studies.engine.setup import make_evaluator
from scalesearch.studies.executors.base import CRASH_DISK_FULL, CRASH_FAULT, CRASH_LOST
from scalesearch.studies.executors.worker import ProgressReport, finish_job
from scalesearch.studies.monitor.running import (
    TEACHER_FOLDER,
    TRANSLATIONS_FOLDER,
    running_teacher,
)
from scalesearch.studies.results.results import load_results
from scalesearch.studies.trials.evaluator import FeasibilityEstimate
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State, Trial
from tests.corpora import write_text
from tests.errors import refuses
from tests.processes import start, wait_until
from tests.studies.config.test_reader import REST, SPACE, problems, write
from tests.studies.engine.test_end_to_end import STUDY
from tests.studies.fakes import FaultyRunner

QUICK = STUDY.replace(
    "recipe: { steps: 6,", "recipe: { steps: 6, score_splits: validation,"
).replace("trials: 2", "trials: 1")
DISTILLED = f"""\
{QUICK}teacher:
  set: {{ width: 32, encoder.depth: 1, decoder.ffn.relu.hidden: 64 }}
  recipe: {{ steps: 60, max_tokens: 256, beam: 1, average: none }}
  beam: 2
"""


def teacher_of(folder, text):
    return read_study(write(folder, f"{SPACE}{REST}teacher: {text}\n")).teacher


def test_folder_and_architecture_are_read(tmp_path):
    assert teacher_of(tmp_path, "runs/big") == TeacherSpec(folder=("runs/big",))
    assert teacher_of(tmp_path, "[ runs/a, runs/b ]") == TeacherSpec(folder=("runs/a", "runs/b"))
    assert teacher_of(
        tmp_path, "{ folder: runs/big, beam: 3, length_penalty: 0.6, mix: yes }"
    ) == TeacherSpec(folder=("runs/big",), beam=3, length_penalty=0.6, mix=True)
    new = teacher_of(tmp_path,
                     "{ file: transformer, set: { encoder.depth: 3 }, recipe: quick, seed: 4 }")
    assert (new.folders, new.file, new.set, new.recipe.name, new.seed, new.beam) == (
        (), "transformer", {"encoder.depth": "3"}, "quick", 4, 5)


def test_teacher_can_be_none_and_has_settings(tmp_path):
    assert teacher_of(tmp_path, "none") is None
    file = write(tmp_path,
                 f"{SPACE}{REST}teacher: {{ file: transformer, recipe: {{ steps: 5 }} }}\n")
    changed = read_study(
        file, ("teacher.recipe.steps=7", "teacher.set.encoder.depth=2", "teacher.mix=yes")).teacher
    assert (changed.recipe.steps, changed.set, changed.mix) == (7, {"encoder.depth": "2"}, True)
    assert read_study(file, ("seed=7",)).teacher.seed == 7
    assert read_study(file, ("seed=7", "teacher.seed=4")).teacher.seed == 4
    assert read_study(file, ("teacher=none",)).teacher is None
    several = write(tmp_path, f"{SPACE}{REST}teacher: [ runs/a, runs/b ]\n")
    assert read_study(several, ("teacher.mix=yes",)).teacher == TeacherSpec(
        folder=("runs/a", "runs/b"), mix=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{ fodler: runs/big }", "did you mean `folder`?"),
     ("{ folder: runs/big, seed: 2 }", "a finished training run, which has its own seed"),
     ("{ beam: 4 }", "neither a folder nor an architecture"),
     ("{ file: transformer, mix: perhaps }",
      "teacher.mix: expected `yes` or `no`, found `perhaps`"),
     ("{ file: transformer, beam: 0 }", "teacher.beam: 0"),
     ("{ file: transformer, set: 3 }", "a mapping of keys to values of the space language"),
     ("{ file: transformer, recipe: { stpes: 4 } }", "did you mean `steps`"),
     ("{ file: transformer, recipe: { steps: 4, score_splits: test } }",
      "a study selects by validation scores"),
     ("[ runs/big, [ runs/other ] ]", "expected a folder, or a list of folders"),
     ("", "expected a folder, or a list of folders")])
def test_invalid_teacher_is_reported_with_position(tmp_path, text, message):
    problem_text = problems(tmp_path, f"{SPACE}{REST}teacher: {text}\n")
    assert message in problem_text and "s.yaml:9:" in problem_text


def test_distilled_data_with_teacher_are_refused(tmp_path):
    text = f"{SPACE}{REST}teacher: runs/big\n".replace(
        "vocab: 400", "vocab: 400, distilled: kd/train")
    assert "already the output of a teacher" in problems(tmp_path, text)


def test_dry_run_refuses_open_architecture(tmp_path):
    file = write(tmp_path, f"{SPACE}{REST}teacher: {{ set: {{ width: 64 }} }}\n")
    with refuses("open-parameters", "encoder.depth", place="teacher: it"):
        dry_run(read_study(file))


def test_report_share():
    assert report_share(ProgressReport()) == 0 and report_share(
        ProgressReport("update", share=0.25)) == 0.25
    assert report_share(ProgressReport("decode", done=30, total=40)) == 0.75


def run(folder, *sets, resume=False, text=DISTILLED, out="found"):
    """Run the study in this process and in ``folder``; return its output."""
    write_text(folder)
    (folder / "run.yaml").write_text(text)
    console_output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        try:
            launch(read_study(Path("run.yaml"), sets, Path(out)), resume,
                   Console(file=console_output, width=200))
        except (UserError, KeyboardInterrupt) as error:
            console_output.write(f"{type(error).__name__}: {error}")
    return console_output.getvalue()


def raise_interrupt(driver):
    raise KeyboardInterrupt


def stop_before_first_candidate(folder, *sets):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driver, "run", raise_interrupt)
        return run(folder, *sets, resume=True)


def kill_during_teacher_training(folder):
    write_text(folder)
    (folder / "tiny.yaml").write_text(DISTILLED)
    process = start(folder, "study", "run", "tiny.yaml")
    wait_until((folder / "found" / "teacher" / "checkpoint.pt").exists, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study stopped before its first candidate, and resumed."""
    folder = tmp_path_factory.mktemp("distilled")
    teacher = folder / "found" / "teacher"
    outputs = {"stopped": stop_before_first_candidate(folder)}
    files = [teacher / name
             for name in ("result.json", "model.safetensors", "corpus/train.de",
                          "corpus/result.json")]
    before = [(file, file.stat().st_mtime_ns) for file in files]
    assert not list((folder / "found").glob("trials/*"))
    outputs["whole"] = run(folder, resume=True)
    assert [(file, file.stat().st_mtime_ns) for file in files] == before
    (folder / "outputs.json").write_text(json.dumps(outputs))
    return folder


def outputs_of(folder):
    return json.loads((folder / "outputs.json").read_text())


def records(folder, out="found"):
    return [json.loads(file.read_text()) for file in (folder / out).glob("trials/*/record.json")]


@pytest.mark.full
def test_study_killed_during_teacher_training_can_be_resumed(tmp_path):
    kill_during_teacher_training(tmp_path)
    again = run(tmp_path)
    assert "UserError" in again and "a study is here already" in again
    changed = run(tmp_path, "teacher.recipe.steps=99", resume=True)
    assert "Changed" in changed and "since this study started, the teacher changed" in changed
    assert not (tmp_path / "found" / "teacher" / "result.json").exists()
    assert "UserError" not in run(tmp_path, resume=True)
    assert {record["state"] for record in records(tmp_path)} == {"complete"}


def test_finished_stages_of_teacher_are_not_repeated(folder):
    outputs = outputs_of(folder)
    assert (
        "in training" in outputs["stopped"]
        and "translates the training text\n" in outputs["stopped"]
    )
    assert outputs["stopped"].endswith("KeyboardInterrupt: ")
    assert (
        "the teacher translates the training text\n" not in outputs["whole"]
        and "[small]" in outputs["whole"]
    )


@pytest.mark.full
def test_notes_of_the_data_are_printed_once(tmp_path):
    """Corpora are loaded again with the teacher's translations."""
    assert run(tmp_path, "protocol.vocab=300").count("vocabulary entries (protocol.vocab)") == 1


def test_all_candidates_have_the_same_teacher(folder):
    new_records = records(folder)
    teacher = json.loads((folder / "found" / "teacher" / "result.json").read_text())
    assert len(new_records) == 2 and {record["state"] for record in new_records} == {"complete"}
    for record in new_records:
        teacher_record = record["teacher"]
        assert (
            teacher_record["architecture"] == teacher["architecture_id"] and teacher["steps"] == 60
        )
        assert teacher_record["bleu"] == {"validation": teacher["metrics"]["bleu"],
                                "test": teacher["metrics"]["test"]["bleu"]}
        assert (
            teacher_record["translations"]["pairs"] == 60
            and "beam 2" in teacher_record["translations"]["decoding"]
        )
        assert (
            record["data"]["hash"]
            == record["corpus_hash"]
            != teacher["corpus_hash"]
            == teacher_record["corpus"]
        )
        assert record["data"]["spec"]["distilled"] == "found/teacher/corpus/train"


def test_report_names_the_teacher(folder):
    results = load_results(folder / "found")
    teacher = records(folder)[0]["teacher"]
    assert results.teacher == teacher
    start = (f"Teacher: {teacher['architecture']}, {teacher['params']:,} params, BLEU "
             f"{teacher['bleu']['validation']:.1f} (validation)")
    assert [line for line in results.notes() if line.startswith(start)]
    assert start in outputs_of(folder)["whole"]


@pytest.mark.parametrize("change", ["teacher.beam=1", "teacher=none", "teacher.seed=2"])
def test_changed_teacher_is_refused(folder, change):
    before = (folder / "found" / "events.jsonl").read_bytes()
    assert "since this study started, the teacher changed" in run(folder, change, resume=True)
    assert (folder / "found" / "events.jsonl").read_bytes() == before


def test_changed_translations_are_refused(folder):
    text = folder / "found" / "teacher" / "corpus" / "train.de"
    before = text.read_text()
    text.write_text(before.replace("\n", " .\n"))
    assert "translations are not those of trial" in run(folder, resume=True)
    text.write_text(before)
    assert "UserError" not in run(folder, resume=True)


def test_dry_run_describes_the_teacher(tmp_path, monkeypatch):
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    spec = read_study(write(tmp_path, DISTILLED), ("teacher.mix=yes",))
    corpora = load_corpora(spec)
    teacher = find_teacher(spec, corpora.first)
    chained = Trial(0, State.INFEASIBLE,
                    costs={"params.total": 1, "macs.total": 2, "macs.once": 4321})
    dry_run = DryRun(spec, make_evaluator(spec, corpora), corpora, (), (), (chained,), 1,
                     FeasibilityEstimate(1, 1, {}, {}), teacher)
    console_output = io.StringIO()
    dry_run.show(Console(file=console_output, width=400))
    assert (
        "trained once: 60 steps" in console_output.getvalue()
        and "macs.once 4,321" in console_output.getvalue()
    )
    assert (
        "with beam 2; candidates learn from its translations and the real pairs"
        in console_output.getvalue()
    )
    assert dry_run_to_json(dry_run)["teacher"]["recipe"]["steps"] == 60


def test_finished_training_run_is_a_teacher(folder):
    text = f"{QUICK}teacher: {{ folder: found/teacher, beam: 3, mix: yes }}\n"
    output = run(folder, "reference=[]", text=text, out="again")
    assert "UserError" not in output, output
    record, = records(folder, "again")
    assert record["data"]["name"].endswith("en-de (distilled, mixed)") and record[
        "state"] == "complete"
    assert record["teacher"]["architecture"] == records(folder)[0]["teacher"]["architecture"]
    assert "and on the real pairs" in output and not (
        folder / "again" / "teacher" / "result.json").exists()


def test_ensemble_is_a_teacher(folder):
    output = run(folder, "reference=[]", "teacher=[found/teacher, found/teacher]", "teacher.beam=2",
               text=QUICK, out="together")
    assert "UserError" not in output, output
    (record,), alone = records(folder, "together"), records(folder)[0]["teacher"]
    facts = record["teacher"]
    two = [folder / out / "teacher" / "corpus" for out in ("found", "together")]
    assert facts["architecture"] == " + ".join(
        [alone["architecture"]] * 2) and facts["seeds"] == 2 * alone["seeds"]
    assert facts["params"] == 2 * alone["params"] and facts["bleu"] == alone["bleu"]
    assert "mean of 2 members" in output
    # the mean of two equal models is the model
    first, second = ((corpus / "train.de").read_text() for corpus in two)
    assert first == second


def test_candidates_train_on_soft_targets(folder):
    output = run(folder, "reference=[]",
               "teacher={ folder: found/teacher, beam: 2, mix: yes, top_k: 4 }", text=QUICK,
               out="soft")
    assert "UserError" not in output and "the teacher computes soft targets" in output, output
    record, = records(folder, "soft")
    assert record["state"] == "complete" and record["teacher"]["top_k"] == 4
    assert record["data"]["spec"]["soft_targets"] == "soft/teacher/soft/train"
    assert "its 4 most probable tokens per position" in output
    facts = json.loads((folder / "soft" / "teacher" / "soft" / "result.json").read_text())
    assert facts["pairs"] > 60 and facts["top"] == 4 and facts["cpu_seconds"] > 0
    assert running_teacher(StudyDir(folder / "soft").load()).stage == "done"
    assert "the teacher changed" in run(folder, "reference=[]",
                                        "teacher={ folder: found/teacher, beam: 2, mix: yes }",
                                        text=QUICK, out="soft", resume=True)


@pytest.fixture
def teacher_run(tmp_path, monkeypatch):
    """Function that runs the jobs of a teacher without training; some attempts crash."""
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    spec = read_study(write(tmp_path, DISTILLED), (), Path("found"))
    teacher = find_teacher(spec, load_corpora(spec).first)

    def result(place, job):
        facts = {"metrics": {"split": "validation", "bleu": 12.0, "decoding": "greedy"}}
        return {"state": "complete", "pairs": 7, "decoding": "beam 2", **facts}

    def run_jobs(*causes):
        runner = FaultyRunner(lambda job_folder: finish_job(Path(job_folder), result), *causes)
        facts = run_teacher(teacher, spec, runner, Console(quiet=True))
        return facts, runner.submitted

    return run_jobs


def test_lost_node_costs_a_teacher_no_attempt(teacher_run):
    facts, submitted = teacher_run(*[CRASH_LOST] * 4, CRASH_FAULT, CRASH_FAULT)
    assert facts["translations"]["pairs"] == 7
    assert submitted == [TEACHER_FOLDER] * 7 + [TRANSLATIONS_FOLDER]


def test_teacher_that_breaks_at_each_attempt_stops_the_study(teacher_run):
    with refuses("teacher-failed", "the worker broke"):
        teacher_run(*[CRASH_FAULT] * 3)


def test_full_disk_stops_a_teacher_that_can_be_resumed(teacher_run):
    with pytest.raises(DiskFullError, match="injected"):
        teacher_run(CRASH_DISK_FULL)
    facts, submitted = teacher_run()
    assert facts["translations"]["pairs"] == 7
    assert submitted == [TEACHER_FOLDER, TRANSLATIONS_FOLDER]


def test_failed_teacher_training_stops_the_study(tmp_path):
    output = run(tmp_path, "teacher.recipe.lr=1e30", "teacher.recipe.clip_norm=0",
               "teacher.recipe.warmup=0")
    assert (
        "UserError: teacher: its training run failed: the loss is" in output
        and "Change its recipe" in output
    )
    assert not list((tmp_path / "found").glob("trials/*"))


@pytest.mark.parametrize(
    ("sets", "message"),
    [(("teacher=nowhere",), "does not exist"),
     (("teacher=found",), "holds no finished training"),
     (("teacher=$NOT_SET/big",),
      "UserError: teacher: $NOT_SET/big needs the environment variable NOT_SET"),
     (("teacher=found/teacher", "data.vocab=290"), "has another vocabulary than the study's data")])
def test_invalid_teacher_folder_is_refused(folder, sets, message):
    assert message in run(folder, *sets, out="new")
    assert not (folder / "new" / "study.json").exists()


def test_teacher_of_another_task_is_refused(folder):
    data = folder / "found" / "teacher" / "data.json"
    before = data.read_text()
    data.write_text(before.replace('"source": "en"', '"source": "de"'))
    output = run(folder, "teacher=found/teacher", out="new")
    data.write_text(before)
    assert "is for another task: source de, and the study's is en" in output


@pytest.mark.full
@pytest.mark.ray
def test_teacher_and_candidates_train_with_ray(tmp_path):
    output = run(tmp_path, "backend=ray", "workers=1")
    new_records = records(tmp_path)
    assert len(new_records) == 2 and {record["state"] for record in new_records} == {"complete"}, (
        output
    )
    assert {record["teacher"]["translations"]["pairs"] for record in new_records} == {60}
    assert len({record["data"]["hash"] for record in new_records}) == 1
