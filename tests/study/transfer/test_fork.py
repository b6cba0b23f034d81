"""Forks: a study with a changed space, budget or objectives imports comparable trials."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from scalesearch.cli.main import main
from scalesearch.space import read_space
from scalesearch.study.executors.local import InProcessRunner
from scalesearch.study.executors.worker import finish_job
from scalesearch.study.results.results import load_results
from scalesearch.study.trials.compatibility import training_differences
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.study_meta import TeacherMeta
from scalesearch.study.trials.trial import Origin, State

STUDY = """\
study: forked
data: { builtin: grammar, pairs: 300, vocab: 300 }
recipe: { steps: 6, max_tokens: 256, beam: 1 }
objectives: { loss: min, params.total: min }
protocol: { source: 12, target: 12 }
budget: params.total <= 60k
space:
  width: 16 | 32 | 48
  encoder: { depth: 1..4, heads: 2, head_dim: 8, ffn: { relu: { hidden: 32 } } }
  decoder: { depth: 1, heads: 2, head_dim: 8, ffn: { relu: { hidden: 32 | 64 } } }
reference: [ { name: small, set: { width: 16, encoder.depth: 1, decoder.ffn.relu.hidden: 32 } } ]
sampler: { type: random }
trials: 8
out: old
"""


def quick(folder):
    """Write a result without training; one depth fails."""
    def run(place, job):
        (place / "trained").touch()
        space = read_space(place / "architecture.yaml")
        params = dict(space.resolve(lambda path, parameter: pytest.fail(f"{path} is open")))
        if params["encoder.depth"] == 4:
            return {"state": "failed", "reason": "the loss is not finite"}
        loss = 10 / (params["width"] + params["encoder.depth"])
        return {"state": "complete", "seconds": 1.0,
                "metrics": {"loss": loss, "bleu": 100 - loss, "split": "valid"}}

    finish_job(Path(folder), run)


@pytest.fixture
def call(tmp_path, monkeypatch, capsys, cache):
    """Function that runs ``study run`` in a folder with the study file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr("scalesearch.study.executors.local.PoolRunner",
                        lambda work, *_: InProcessRunner(quick))
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "s.yaml").write_text(STUDY)

    def run(*arguments, status=0):
        monkeypatch.setattr("sys.argv", ["scalesearch", "study", "run", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        assert (ended.value.code or 0) == status, output.out + output.err
        return output.out + output.err

    return run


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def state(folder):
    return {file.relative_to(folder): file.read_bytes() for file in Path(folder).rglob("*")
            if file.is_file() and not file.name.startswith(".")}


def test_changed_space_is_refused_with_fork_command(call):
    call("s.yaml")
    before = state("old")
    old = StudyDir(Path("old")).load()
    most = sorted(trial.costs["params.total"] for trial in old.trials.with_state(State.COMPLETE))[4]
    change = ("--set", "space.width=20 | 24 | 28 | 32", "--set", f"budget=params.total <= {most}")
    output = call("s.yaml", "--resume", "--trials", "9", *change, status=2)
    assert "since this study started, the space and the limits changed. Undo" in output
    command = shlex.split(output.strip().splitlines()[-1])
    assert command[:3] == ["scalesearch", "study", "run"] and command[-2:] == ["--fork", "old-2"]

    dry_output = call(*command[3:], "--dry-run")
    assert not Path("old-2").exists()
    output = call(*command[3:])
    new = StudyDir(Path("old-2")).load()
    assert state("old") == before
    assert set(dry_output.splitlines()) >= {
        line for line in output.splitlines() if "not trial" in line or "From old" in line}

    fit = [trial
           for trial in old.trials.with_state(State.COMPLETE)
           if trial.costs["params.total"] <= most]
    imported = [trial for trial in new.trials if trial.source]
    assert [trial.architecture for trial in imported] == [
        trial.architecture for trial in fit] and len(fit) >= 2
    ended = old.trials.with_state(State.COMPLETE, State.FAILED)
    assert f"{len(fit)} of {len(ended)} candidates are taken over" in output
    over = [trial for trial in old.trials.with_state(State.COMPLETE) if trial not in fit]
    failed = old.trials.with_state(State.FAILED)
    for some, why in ((over, f"not params.total <= {most} (by "),
                      (failed, "it failed: the loss is not " "finite")):
        assert some and all(
            f"not trial {t.number} ({t.architecture}): {why}" in output for t in some
        )

    for trial, was in zip(imported, fit):
        record = new.record(trial)
        before_ = old.record(was)
        assert trial.values == was.values and trial.is_in_space == (trial.config["width"] == 32)
        assert (
            record["space_hash"]
            == before_["space_hash"]
            == old.meta.space_hash
            != new.meta.space_hash
        )
        assert record["source"] == {"study": "forked", "id": old.meta.id, "trial": was.number,
                                    "folder": str(old.trial_folder(was).resolve()),
                                    "space": old.meta.space_hash}
        assert {key: record[key] for key in ("recipe", "seed", "data", "metrics", "versions")} == {
            key: before_[key] for key in ("recipe", "seed", "data", "metrics", "versions")}
        assert (new.trial_folder(trial) / "architecture.yaml").read_text() == (
            old.trial_folder(was) / "architecture.yaml").read_text()
    assert [t.label for t in imported if t.origin == Origin.REFERENCE] == ["small"]
    assert sum(t.state == State.COMPLETE and t.origin == Origin.SAMPLER for t in new.trials) == 9
    architectures = [
        trial.architecture for trial in new.trials.with_state(State.COMPLETE, State.FAILED)
    ]
    assert len(architectures) == len(set(architectures)) and new.meta.name == "old-2"
    assert new.meta.forked_from["trials"] == len(fit)
    assert len(load_results(Path("old-2")).front)

    again = call("s.yaml", "--out", "old-2", "--resume", "--trials", "10", *change)
    assert "10 candidates trained" in again
    assert {new.record(t)["study"]
            for t in StudyDir(Path("old-2")).load().trials.with_state(State.COMPLETE)} == {"old-2"}


def test_replicates_are_imported_with_their_trial(call):
    call("s.yaml", "--trials", "4", "--set", "seeds={max_per_candidate: 2, extra_runs: 9}")
    old = StudyDir(Path("old")).load()
    firsts = {trial.original for trial in old.trials.replicates()}
    least = min(old.trials[number].costs["params.total"] for number in firsts)
    most = max(old.trials[number].costs["params.total"] for number in firsts) - 1
    output = call("s.yaml", "--trials", "4", "--set", f"budget=params.total <= {most}", "--fork",
                "new")
    new = StudyDir(Path("new")).load()
    again = [trial for trial in new.trials.replicates() if trial.source]
    # the expensive trial misses the limit
    assert least < most and again and "it is a replicate of trial" not in output
    for trial in again:
        was = old.trials[trial.source["trial"]]
        assert (trial.seed, trial.values) == (
            was.seed, was.values) and new.record(trial)["seed"] == was.seed
        assert new.trials[trial.original].architecture == trial.architecture == old.trials[
            was.original].architecture
        assert trial.label == new.trials[trial.original].label
    assert len(load_results(Path("new")).seeds) == 2 * len(again)


def test_new_objective_is_read_from_records(call):
    call("s.yaml", "--trials", "3")
    more = ("--set", "objectives={bleu: max, macs.total: min}", "--set", "protocol.source=20",
            "--trials", "3")
    assert "the objectives and the cost protocol changed" in call(
        "s.yaml", "--resume", *more, status=2)
    call("s.yaml", *more, "--fork", "new")
    old = StudyDir(Path("old")).load()
    new = StudyDir(Path("new")).load()
    done = new.trials.with_state(State.COMPLETE)
    assert [trial.architecture for trial in done] == [
        trial.architecture for trial in old.trials.with_state(State.COMPLETE)]
    for trial in done:
        was = old.record(old.trials.first_with_identity(trial.architecture))
        assert trial.values == {"bleu": was["metrics"]["bleu"],
                                "macs.total": float(trial.costs["macs.total"])}
        assert trial.costs["macs.total"] > was["costs"]["macs.total"]


def test_trials_without_new_objective_are_not_imported(call):
    call("s.yaml", "--trials", "2")
    latency = ("--set", "objectives.latency=min", "--trials", "2")
    output = call("s.yaml", "--resume", *latency, status=2)
    assert (
        "the objectives and the measurements of the recipe changed" in output and "--fork old-2" in output
    )
    output = call("s.yaml", *latency, "--fork", "new", status=2)
    assert "nothing can be taken over" in output and "training gave no usable latency" in output
    assert not StudyDir(Path("new")).has_started()


@pytest.mark.parametrize(("change", "what"),
                         [("recipe.steps=7", "the training recipe"),
                          ("seed=3", "the training seed"), ("data.pairs=301", "the data")])
def test_incomparable_change_cannot_be_forked(call, change, what):
    call("s.yaml", "--trials", "1")
    output = call("s.yaml", "--resume", "--set", change, status=2)
    assert what in output and "changed, so old and new candidates are not comparable" in output
    assert "start another study with --out" in output and "--fork" not in output
    output = call("s.yaml", "--fork", "new", "--set", change, status=2)
    assert what in output and "its trials cannot be compared" in output and not StudyDir(
        Path("new")).has_started()


def test_new_recipe_field_with_default_changes_nothing(call):
    """With its default, the study can be resumed and its candidates can be imported."""
    call("s.yaml", "--trials", "1")
    old = StudyDir(Path("old")).load()
    for file in old.folder.glob("trials/*/record.json"):
        del (text := json.loads(file.read_text()))["recipe"]["subword_dropout"]
        file.write_text(json.dumps(text))
    old.update_meta(recipe={key: value
                            for key, value in old.meta.recipe.items() if key != "subword_dropout"})
    assert "training recipe" in call("s.yaml", "--resume", "--set", "recipe.subword_dropout=0.1",
                                     status=2)
    call("s.yaml", "--resume", "--trials", "2")
    call("s.yaml", "--fork", "new", "--trials", "3")
    done = StudyDir(Path("new")).load().trials.with_state(State.COMPLETE)
    assert sum(trial.source is not None
               for trial in done) == len(old.load().trials.with_state(State.COMPLETE)) > 1


def test_new_field_of_teacher_recipe_changes_nothing(call):
    call("s.yaml", "--trials", "1")
    meta = StudyDir(Path("old")).load().meta
    earlier = {key: value for key, value in meta.recipe.items() if key != "subword_dropout"}
    before, same, other = (replace(meta, teacher=TeacherMeta("id", recipe=recipe)) for recipe in (
        earlier, meta.recipe, {**meta.recipe, "subword_dropout": 0.1}))
    assert training_differences(before, same) == [] and training_differences(
        before, other) == ["the teacher"]


def test_invalid_fork_folders_are_refused(call):
    assert "does not contain a study" in call("s.yaml", "--fork", "new", status=2)
    call("s.yaml", "--trials", "1")
    assert "this is the study's own folder" in call("s.yaml", "--fork", "./old", status=2)
    call("s.yaml", "--trials", "1", "--out", "other")
    assert "a study exists there already. Continue it with --out other --resume" in call(
        "s.yaml", "--fork", "other", status=2)


def test_interrupted_fork_is_repeated(call, monkeypatch):
    call("s.yaml", "--trials", "2")
    create = StudyDir.create
    change = ("--set", "budget=params.total <= 70k", "--trials", "3")

    def die(self, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(StudyDir, "create", die)
    assert "the same command" in call("s.yaml", *change, "--fork", "new", status=130)
    monkeypatch.setattr(StudyDir, "create", create)
    assert "3 candidates trained" in call("s.yaml", *change, "--fork", "new")
    events = [json.loads(line) for line in Path("new/events.jsonl").read_text().splitlines()]
    assert [event["trial"] for event in events[:3]] == [
        0, 1, 2] and events[0]["source"]["study"] == "forked"
