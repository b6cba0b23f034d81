"""A teacher in a study: read from its file, looked at before anything starts, and a real study under one."""

import io
import json
import signal
from pathlib import Path

import pytest
from rich.console import Console

from scalesearch.errors import UserError
from scalesearch.study.config.reader import read_study
from scalesearch.study.config.sections import TeacherSpec
from scalesearch.study.engine.distillation import find_teacher, report_share
from scalesearch.study.engine.driver import Driver
from scalesearch.study.engine.dry_run import DryRun, dry_run
from scalesearch.study.engine.run import launch
from scalesearch.study.engine.setup import load_data, make_evaluator
from scalesearch.study.executors.worker import ProgressReport
from scalesearch.study.monitor.running import running_teacher
from scalesearch.study.results.results import load_results
from scalesearch.study.trials.evaluator import FeasibilityEstimate
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import State, Trial
from tests.corpora import write_text
from tests.errors import refuses
from tests.processes import start, wait_until
from tests.study.config.test_reader import REST, SPACE, problems, write
from tests.study.engine.test_end_to_end import STUDY

QUICK = STUDY.replace("recipe: { steps: 6,",
                      "recipe: { steps: 6, score_splits: validation,").replace("trials: 2", "trials: 1")
TAUGHT = f"""\
{QUICK}teacher:
  set: {{ width: 32, encoder.depth: 1, decoder.ffn.relu.hidden: 64 }}
  recipe: {{ steps: 60, max_tokens: 256, beam: 1, average: none }}
  beam: 2
"""


def teacher_of(folder, text):
    return read_study(write(folder, f"{SPACE}{REST}teacher: {text}\n")).teacher


def test_a_folder_or_an_architecture_is_read(tmp_path):
    assert teacher_of(tmp_path, "runs/big") == TeacherSpec(("runs/big",))
    assert teacher_of(tmp_path, "[ runs/a, runs/b ]") == TeacherSpec(("runs/a", "runs/b"))
    assert teacher_of(tmp_path, "{ folder: runs/big, beam: 3, length_penalty: 0.6, mix: yes }") == TeacherSpec(
        ("runs/big",), beam=3, length_penalty=0.6, mix=True)
    new = teacher_of(tmp_path,
                     "{ file: transformer, set: { encoder.depth: 3 }, recipe: quick, seed: 4 }")
    assert (new.folders, new.file, new.set, new.recipe.name, new.seed, new.beam) == (
        (), "transformer", {"encoder.depth": "3"}, "quick", 4, 5)


def test_none_is_none_and_settings_reach_inside(tmp_path):
    assert teacher_of(tmp_path, "none") is None
    file = write(tmp_path,
                 f"{SPACE}{REST}teacher: {{ file: transformer, recipe: {{ steps: 5 }} }}\n")
    changed = read_study(
        file, ("teacher.recipe.steps=7", "teacher.set.encoder.depth=2", "teacher.mix=yes")).teacher
    assert (changed.recipe.steps, changed.set, changed.mix) == (7, {"encoder.depth": "2"}, True)
    assert read_study(file, ("teacher=none",)).teacher is None
    several = write(tmp_path, f"{SPACE}{REST}teacher: [ runs/a, runs/b ]\n")
    assert read_study(several, ("teacher.mix=yes",)).teacher == TeacherSpec(
        ("runs/a", "runs/b"), mix=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{ fodler: runs/big }", "did you mean `folder`?"),
     ("{ folder: runs/big, seed: 2 }", "a finished training, which has its own " "seed"),
     ("{ beam: 4 }", "neither a folder " "nor " "an architecture"),
     ("{ file: transformer, mix: " "perhaps }",
      "teacher.mix: expected `yes` or `no`, found `perhaps`"),
     ("{ file: transformer, beam: 0 }", "teacher.beam: 0"),
     ("{ file: transformer, set: 3 }", "a mapping of keys to values of the " "space language"),
     ("{ file: transformer, recipe: { stpes: 4 } }", "did you mean `steps`"),
     ("{ file: transformer, recipe: { steps: 4, score_splits: test } }",
      "a study selects by validation scores"),
     ("[ runs/big, [ runs/other ] ]", "expected a folder, or a list of " "folders"),
     ("", "expected a folder, or " "a list of folders")])
def test_what_is_wrong_is_said_with_its_place(tmp_path, text, message):
    said = problems(tmp_path, f"{SPACE}{REST}teacher: {text}\n")
    assert message in said and "s.yaml:9:" in said


def test_a_teacher_of_translations_is_refused(tmp_path):
    text = f"{SPACE}{REST}teacher: runs/big\n".replace(
        "vocab: 400", "vocab: 400, distilled: kd/train")
    assert "a teacher's words already" in problems(tmp_path, text)


def test_an_open_architecture_is_refused_by_a_dry_run(tmp_path):
    file = write(tmp_path, f"{SPACE}{REST}teacher: {{ set: {{ width: 64 }} }}\n")
    with refuses("open-parameters", "encoder.depth", place="teacher: it"):
        dry_run(read_study(file))


def test_how_far_it_is():
    assert report_share(ProgressReport()) == 0 and report_share(
        ProgressReport("update", share=0.25)) == 0.25
    assert report_share(ProgressReport("decode", done=30, total=40)) == 0.75


def run(folder, *sets, resume=False, text=TAUGHT, out="found", fork=None):
    """Runs the study in this process, from inside ``folder``, and returns what it says."""
    write_text(folder)
    (folder / "run.yaml").write_text(text)
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        try:
            launch(read_study(Path("run.yaml"), sets, Path(out)), resume,
                   Console(file=said, width=200), fork)
        except (UserError, KeyboardInterrupt) as error:
            said.write(f"{type(error).__name__}: {error}")
    return said.getvalue()


def interrupted(driver):
    raise KeyboardInterrupt


def stop_before_the_first_candidate(folder, *sets):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driver, "run", interrupted)
        return run(folder, *sets, resume=True)


def killed_while_the_teacher_learns(folder):
    write_text(folder)
    (folder / "tiny.yaml").write_text(TAUGHT)
    process = start(folder, "study", "run", "tiny.yaml")
    wait_until((folder / "found" / "teacher" / "checkpoint.pt").exists, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study killed in its teacher's training, stopped again before its first candidate, and then gone on with."""
    where = tmp_path_factory.mktemp("taught")
    teacher = where / "found" / "teacher"
    killed_while_the_teacher_learns(where)
    said = {"again": run(where), "other": run(where, "teacher.recipe.steps=99", resume=True)}
    assert not (teacher / "result.json").exists()
    said["stopped"] = stop_before_the_first_candidate(where)
    files = [teacher / name
             for name in ("result.json", "model.safetensors", "corpus/train.de",
                          "corpus/result.json")]
    before = [(file, file.stat().st_mtime_ns) for file in files]
    assert not list((where / "found").glob("trials/*"))
    said["whole"] = run(where, resume=True)
    assert [(file, file.stat().st_mtime_ns) for file in files] == before
    (where / "said.json").write_text(json.dumps(said))
    return where


def said_by(folder):
    return json.loads((folder / "said.json").read_text())


def records(folder, out="found"):
    return [json.loads(file.read_text()) for file in (folder / out).glob("trials/*/record.json")]


def test_a_study_that_was_killed_while_its_teacher_learned_is_there(folder):
    said = said_by(folder)
    assert "UserError" in said["again"] and "a study is here already" in said["again"]
    assert "Changed" in said["other"] and "since this study began, the teacher changed" in said[
        "other"]


def test_what_was_done_is_not_done_again(folder):
    said = said_by(folder)
    assert "in training" in said["stopped"] and "translates the training text\n" in said["stopped"]
    assert said["stopped"].endswith("KeyboardInterrupt: ")
    assert "the teacher translates the training text\n" not in said["whole"] and "[small]" in said[
        "whole"]


def test_every_candidate_learned_from_the_one_teacher(folder):
    found = records(folder)
    teacher = json.loads((folder / "found" / "teacher" / "result.json").read_text())
    assert len(found) == 2 and {record["state"] for record in found} == {"complete"}
    for record in found:
        said = record["teacher"]
        assert said["architecture"] == teacher["architecture_id"] and teacher["steps"] == 60
        assert said["bleu"] == {"validation": teacher["metrics"]["bleu"],
                                "test": teacher["metrics"]["test"]["bleu"]}
        assert said["translations"]["pairs"] == 60 and "beam 2" in said["translations"]["decoding"]
        assert record["data"]["hash"] == record["corpus_hash"] != teacher["corpus_hash"] == said["corpus"]
        assert record["data"]["spec"]["distilled"] == "found/teacher/corpus/train"


def test_the_report_says_who_taught(folder):
    results = load_results(folder / "found")
    teacher = records(folder)[0]["teacher"]
    assert results.teacher == teacher
    start = (f"Teacher: {teacher['architecture']}, {teacher['params']:,} params, BLEU "
             f"{teacher['bleu']['validation']:.1f} on")
    assert [line for line in results.notes() if line.startswith(start)]
    assert start in said_by(folder)["whole"]


@pytest.mark.parametrize("change", ["teacher.beam=1", "teacher=none", "teacher.seed=2"])
def test_another_teacher_is_refused(folder, change):
    before = (folder / "found" / "events.jsonl").read_bytes()
    assert "since this study began, the teacher changed" in run(folder, change, resume=True)
    assert (folder / "found" / "events.jsonl").read_bytes() == before


def test_other_translations_are_refused(folder):
    text = folder / "found" / "teacher" / "corpus" / "train.de"
    before = text.read_text()
    text.write_text(before.replace("\n", " .\n"))
    assert "translations are not those that trial" in run(folder, resume=True)
    text.write_text(before)
    assert "UserError" not in run(folder, resume=True)


def test_a_dry_run_says_who_will_teach(tmp_path, monkeypatch):
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    spec = read_study(write(tmp_path, TAUGHT), ("teacher.mix=yes",))
    corpora = load_data(spec)
    teacher = find_teacher(spec, corpora.first)
    chained = Trial(0, State.INFEASIBLE,
                    costs={"params.total": 1, "macs.total": 2, "macs.once": 4321})
    found = DryRun(spec, make_evaluator(spec, corpora), (chained,), 1,
                   FeasibilityEstimate(1, 1, {}, {}), teacher)
    said = io.StringIO()
    found.show(Console(file=said, width=400))
    assert "trained once: 60 steps" in said.getvalue() and "macs.once 4,321" in said.getvalue()
    assert "with beam 2; candidates learn from its translations and the real pairs" in said.getvalue()
    assert found.to_json()["teacher"]["recipe"]["steps"] == 60


def test_a_finished_training_teaches_another_study(folder):
    text = f"{QUICK}teacher: {{ folder: found/teacher, beam: 3, mix: yes }}\n"
    said = run(folder, "reference=[]", text=text, out="again")
    assert "UserError" not in said, said
    record, = records(folder, "again")
    assert record["data"]["name"].endswith("en-de (distilled, mixed)") and record[
        "state"] == "complete"
    assert record["teacher"]["architecture"] == records(folder)[0]["teacher"]["architecture"]
    assert "and from the real pairs" in said and not (
        folder / "again" / "teacher" / "result.json").exists()


def test_several_trainings_teach_as_one(folder):
    said = run(folder, "reference=[]", "teacher=[found/teacher, found/teacher]", "teacher.beam=2",
               text=QUICK, out="together")
    assert "UserError" not in said, said
    (record,), alone = records(folder, "together"), records(folder)[0]["teacher"]
    facts = record["teacher"]
    two = [folder / out / "teacher" / "corpus" for out in ("found", "together")]
    assert facts["architecture"] == " + ".join(
        [alone["architecture"]] * 2) and facts["seeds"] == 2 * alone["seeds"]
    assert facts["params"] == 2 * alone["params"] and facts["bleu"] == alone["bleu"]
    assert "each alone in the mean of 2" in said
    # the mean of two that are alike is either
    one, other = ((corpus / "train.de").read_text() for corpus in two)
    assert one == other


def test_its_probabilities_are_learned_too(folder):
    said = run(folder, "reference=[]",
               "teacher={ folder: found/teacher, beam: 2, mix: yes, top_k: 4 }", text=QUICK,
               out="softened")
    assert "UserError" not in said and "the teacher computes soft targets" in said, said
    record, = records(folder, "softened")
    assert record["state"] == "complete" and record["teacher"]["top_k"] == 4
    assert record["data"]["spec"]["soft_targets"] == "softened/teacher/soft/train"
    assert "its 4 likeliest tokens at every place" in said
    facts = json.loads((folder / "softened" / "teacher" / "soft" / "result.json").read_text())
    assert facts["pairs"] > 60 and facts["top"] == 4 and facts["cpu_seconds"] > 0
    assert running_teacher(StudyDir(folder / "softened").load()).stage == "done"
    assert "the teacher changed" in run(folder, "reference=[]",
                                        "teacher={ folder: found/teacher, beam: 2, mix: yes }",
                                        text=QUICK, out="softened", resume=True)


def test_a_fork_keeps_the_teacher_and_what_it_taught(folder):
    said = run(folder, "budget=params.total <= 41k", fork=Path("forked"))
    assert "2 of 2 candidates are taken over" in said and "in training" not in said and "UserError" not in said, said
    found = sorted(records(folder, "forked"), key=lambda record: record["trial"])
    before = sorted(records(folder), key=lambda record: record["trial"])
    assert [record["metrics"] for record in found] == [record["metrics"] for record in before]
    assert {record["teacher"]["architecture"]
            for record in found} == {before[0]["teacher"]["architecture"]}
    for name in ("result.json", "corpus/train.de"):
        old, new = (folder / out / "teacher" / name for out in ("found", "forked"))
        assert old.read_bytes() == new.read_bytes()


def test_a_teacher_whose_training_fails_stops_the_study(tmp_path):
    said = run(tmp_path, "teacher.recipe.lr=1e30", "teacher.recipe.clip_norm=0",
               "teacher.recipe.warmup=0")
    assert "UserError: teacher: its training failed: the loss is" in said and "Change its recipe" in said
    assert not list((tmp_path / "found").glob("trials/*"))


@pytest.mark.parametrize(
    ("sets", "message"),
    [(("teacher=nowhere",), "does not exist"),
     (("teacher=found",), "holds no finished " "training"),
     (("teacher=$NOT_SET/big",),
      "UserError: teacher: $NOT_SET/big " "needs the environment variable " "NOT_SET"),
     (("teacher=found/teacher", "data.vocab=290"), "has another vocabulary than the study's data")])
def test_a_folder_that_cannot_teach_is_refused(folder, sets, message):
    assert message in run(folder, *sets, out="new")
    assert not (folder / "new" / "study.json").exists()


def test_a_teacher_of_another_task_is_refused(folder):
    data = folder / "found" / "teacher" / "data.json"
    before = data.read_text()
    data.write_text(before.replace('"source": "en"', '"source": "de"'))
    said = run(folder, "teacher=found/teacher", out="new")
    data.write_text(before)
    assert "learned another task: source de, and the study's is en" in said


@pytest.mark.ray
def test_ray_workers_train_the_teacher_and_learn_from_it(tmp_path):
    said = run(tmp_path, "backend=ray", "workers=1")
    found = records(tmp_path)
    assert len(found) == 2 and {record["state"] for record in found} == {"complete"}, said
    assert {record["teacher"]["translations"]["pairs"] for record in found} == {60}
    assert len({record["data"]["hash"] for record in found}) == 1
