"""A teacher in a study: read from its file, looked at before anything starts, and a real study under one."""

import json
import signal
import time

import pytest

from scalesearch.errors import UserError
from scalesearch.study.file import read_study
from scalesearch.study.prepare import load_data
from scalesearch.study.preview import preview
from scalesearch.study.teacher import TeacherSpec
from scalesearch.study.teaching import find_teacher, share
from tests.study.test_end_to_end import STUDY, call, start
from tests.study.test_file import REST, SPACE, problems, write

BIG = "{ set: { width: 48, encoder.depth: 2, decoder.ffn.relu.hidden: 64 }, recipe: { steps: 9, beam: 1 }, beam: 2 }"
TAUGHT = f"{STUDY}teacher: {BIG}\n"


def teacher_of(folder, text):
    return read_study(write(folder, f"{SPACE}{REST}teacher: {text}\n")).teacher


def test_a_folder_or_an_architecture_is_read(tmp_path):
    assert teacher_of(tmp_path, "runs/big") == TeacherSpec("runs/big")
    assert teacher_of(tmp_path, "{ folder: runs/big, beam: 3, length_penalty: 0.6, mix: yes }") == TeacherSpec(
        "runs/big", beam=3, length_penalty=0.6, mix=True)
    new = teacher_of(tmp_path, "{ file: transformer, set: { encoder.depth: 3 }, recipe: quick, seed: 4 }")
    assert (new.folder, new.file, new.set, new.recipe.name, new.seed, new.beam) == (
        None, "transformer", {"encoder.depth": "3"}, "quick", 4, 5)


def test_none_is_none_and_settings_reach_inside(tmp_path):
    assert teacher_of(tmp_path, "none") is None
    file = write(tmp_path, f"{SPACE}{REST}teacher: {{ file: transformer, recipe: {{ steps: 5 }} }}\n")
    changed = read_study(file, ("teacher.recipe.steps=7", "teacher.set.encoder.depth=2", "teacher.mix=yes")).teacher
    assert (changed.recipe.steps, changed.set, changed.mix) == (7, {"encoder.depth": "2"}, True)
    assert read_study(file, ("teacher=none",)).teacher is None


@pytest.mark.parametrize(("text", "message"), [
    ("{ fodler: runs/big }", "there is no key `fodler` here"),
    ("{ folder: runs/big, seed: 2 }", "a finished training, which has its own seed"),
    ("{ beam: 4 }", "neither a folder nor an architecture"),
    ("{ file: transformer, mix: perhaps }", "mix: expected yes or no, found 'perhaps'"),
    ("{ file: transformer, beam: 0 }", "beam: `0` stands where a whole number of at least 1 is due"),
    ("{ file: transformer, set: 3 }", "set: expected answers"),
    ("{ file: transformer, recipe: { stpes: 4 } }", "did you mean `steps`"),
    ("{ file: transformer, recipe: { steps: 4, score_on: test } }", "a study chooses by its scores"),
    ("[ runs/big ]", "a teacher is the folder of a finished training"),
    ("", "a teacher is the folder of a finished training"),
])
def test_what_is_wrong_is_said_with_its_place(tmp_path, text, message):
    said = problems(tmp_path, f"{SPACE}{REST}teacher: {text}\n")
    assert message in said and "s.yaml:9:" in said


def test_a_teacher_of_translations_is_refused(tmp_path):
    text = f"{SPACE}{REST}teacher: runs/big\n".replace("vocab: 400", "vocab: 400, distilled: kd/train")
    assert "a teacher's translations already" in problems(tmp_path, text)


def test_an_open_architecture_is_refused_by_a_dry_run(tmp_path):
    file = write(tmp_path, f"{SPACE}{REST}teacher: {{ set: {{ width: 64 }} }}\n")
    with pytest.raises(UserError, match=r"teacher: it leaves encoder\.depth open"):
        preview(read_study(file))


def test_how_far_it_is():
    assert share({}) == 0 and share({"kind": "update", "share": 0.25}) == 0.25
    assert share({"kind": "decode", "done": 30, "of": 40}) == 0.75


def wait_for(process, *files):
    until = time.monotonic() + 120
    while not all(file.exists() for file in files):
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.01)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study that was killed while its first candidate trained, and then gone on with."""
    where = tmp_path_factory.mktemp("taught")
    (where / "tiny.yaml").write_text(TAUGHT)
    teacher = where / "found" / "teacher"
    # The candidates' training is long enough to be killed in, and steps are part of what a resumed study must keep.
    process = start(where, "run", "tiny.yaml", "--set", "recipe.steps=40")
    wait_for(process, teacher / "corpus" / "result.json", where / "found" / "events.jsonl")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    files = [teacher / name for name in ("result.json", "model.safetensors", "corpus/train.de", "corpus/result.json")]
    before = [(file, file.stat().st_mtime_ns) for file in files]
    assert not list((where / "found").glob("trials/*/record.json"))
    (where / "said.txt").write_text(call(where, "run", "tiny.yaml", "--set", "recipe.steps=40", "--resume"))
    assert [(file, file.stat().st_mtime_ns) for file in files] == before
    return where


def records(folder):
    return [json.loads(file.read_text()) for file in (folder / "found").glob("trials/*/record.json")]


def test_every_candidate_learned_from_the_one_teacher(folder):
    found, teacher = records(folder), json.loads((folder / "found" / "teacher" / "result.json").read_text())
    assert len(found) == 3 and {record["state"] for record in found} == {"complete"}
    for record in found:
        said = record["teacher"]
        assert said["architecture"] == teacher["architecture_id"] and teacher["steps"] == 9
        assert said["bleu"] == {"valid": teacher["metrics"]["bleu"], "test": teacher["metrics"]["test"]["bleu"]}
        assert said["translations"]["pairs"] == 300 and "beam 2" in said["translations"]["decode"]
        assert record["data"]["hash"] == record["corpus"] != teacher["corpus"] == said["corpus"]
        assert record["data"]["synthetic"] and record["data"]["spec"]["distilled"] == "found/teacher/corpus/train"


def test_the_report_says_who_taught(folder):
    said = (folder / "said.txt").read_text()
    teacher = records(folder)[0]["teacher"]
    line = f"Teacher: {teacher['architecture']}, {teacher['params']:,} params, BLEU {teacher['bleu']['valid']:.1f} on valid"
    assert line in said and line in call(folder, "front", "found")
    assert json.loads(call(folder, "status", "found", "--json"))["teacher"] == teacher


@pytest.mark.parametrize(("arguments", "message"), [
    (["--resume", "--set", "teacher.beam=1"], "since this study began, the teacher changed"),
    (["--resume", "--set", "teacher=none"], "since this study began, the teacher changed"),
    ([], "a study is here already"),
])
def test_another_teacher_is_refused(folder, arguments, message):
    said = call(folder, "run", "tiny.yaml", "--set", "recipe.steps=40", *arguments, status=2)
    assert message in said and "Traceback" not in said


def test_a_dry_run_says_who_will_teach(folder):
    said = call(folder, "run", "tiny.yaml", "--dry-run", "--set", "teacher.mix=yes")
    assert "trained once: 9 steps" in said and "with beam 2; candidates learn from its translations and the real" in said


def test_a_study_that_was_killed_while_its_teacher_learned_is_there(folder, tmp_path):
    (tmp_path / "tiny.yaml").write_text(TAUGHT)
    process = start(tmp_path, "run", "tiny.yaml", "--set", "teacher.recipe.steps=5000")
    wait_for(process, tmp_path / "found" / "teacher" / "checkpoint.pt")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert "a study is here already" in call(tmp_path, "run", "tiny.yaml", status=2)
    assert "the teacher changed" in call(tmp_path, "run", "tiny.yaml", "--resume", status=2)


def spec_under(folder, text, sets=()):
    file = folder / "again.yaml"
    file.write_text(f"{STUDY}teacher: {text}\n")
    return read_study(file, sets)


def found_teacher(spec):
    return find_teacher(spec, load_data(spec.data))


def test_a_finished_training_teaches_another_study(folder):
    (folder / "again.yaml").write_text(f"{STUDY}teacher: {{ folder: found/teacher, beam: 1, mix: yes }}\n")
    said = call(folder, "run", "again.yaml", "--out", "again", "--trials", "1")
    assert "(distilled, mixed)" in (folder / "again" / "trials").glob("*/record.json").__next__().read_text()
    assert "and from the real pairs" in said and not (folder / "again" / "teacher" / "result.json").exists()


@pytest.mark.parametrize(("sets", "message"), [
    (("teacher=nowhere",), "there is no folder"),
    (("teacher=found",), "holds no finished training"),
    (("teacher=$NOT_SET/big",), "teacher: \\$NOT_SET/big needs the environment variable NOT_SET"),
    (("data.vocab=290",), "has another vocabulary than the study's data"),
])
def test_a_folder_that_cannot_teach_is_refused(folder, monkeypatch, sets, message):
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=message):
        found_teacher(spec_under(folder, "found/teacher", sets))


def test_a_teacher_of_another_task_is_refused(folder, monkeypatch):
    monkeypatch.chdir(folder)
    spec = spec_under(folder, "found/teacher")
    corpus = load_data(spec.data)
    data = folder / "found" / "teacher" / "data.json"
    before = data.read_text()
    data.write_text(before.replace('"builtin": "grammar"', '"source": "de"'))
    with pytest.raises(UserError, match="learned another task: builtin None, and the study's is grammar"):
        find_teacher(spec, corpus)
    data.write_text(before)
    assert find_teacher(spec, corpus).architecture.id == records(folder)[0]["teacher"]["architecture"]
