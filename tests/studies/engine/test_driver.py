"""Studies in the fake space: trained candidates, files, and trials exported to Optuna."""

import json
from collections import Counter
from itertools import count

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from scalesearch.files import DiskFullError
from scalesearch.samplers.candidate_sampler import SpaceExhaustedError
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.executors.base import CRASH_DISK_FULL, CRASH_FAULT, CRASH_LOST
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Callback, Origin, State
from tests.errors import refuses
from tests.studies.fakes import (
    FakeSpace,
    FaultyRunner,
    architecture_of,
    breaking_work,
    fake_work,
    make_driver,
    make_plan,
    score,
)
from tests.studies.noisy import noisy_work, seeded_plan

KINDS = ["tpe", "nsga2", "random"]


def trained(folder):
    """Folder name of each candidate to the number of its training runs."""
    return Counter({path.parent.name: len(path.read_text().splitlines())
                    for path in folder.rglob("trained")})


@pytest.mark.parametrize("kind", KINDS)
def test_requested_trials_are_trained_once_within_budget(tmp_path, kind):
    driver = make_driver(tmp_path, make_plan(12), kind=kind)
    assert driver.run() == "12 candidates trained"
    trials = StudyDir(tmp_path).load().trials
    done = trials.with_state(State.COMPLETE)
    assert len(done) == 12 and len({trial.architecture for trial in done}) == 12
    assert all(trial.costs["params.total"] <= 6000 for trial in done)
    assert trained(tmp_path) == Counter(trial.folder for trial in done)


@pytest.mark.parametrize("kind", KINDS)
def test_optuna_has_all_proposals_with_constraints(tmp_path, kind):
    driver = make_driver(tmp_path, make_plan(10, most=2000), kind=kind)
    driver.run()
    states = {State.COMPLETE: "COMPLETE", State.INFEASIBLE: "PRUNED", State.DUPLICATE: "FAIL"}
    exported_trials = driver.search.study.get_trials()
    trials = list(driver.trials)
    assert [trial.state.name for trial in exported_trials] == [
        states[trial.state] for trial in trials
    ]
    # others never leave the region
    assert kind != "tpe" or State.INFEASIBLE in {trial.state for trial in trials}
    assert {tuple(trial.constraints) for trial in exported_trials} == {
        ("buildable", "params.total <= 2000")
    }
    for trial, exported_trial in zip(trials, exported_trials):
        assert (max(exported_trial.constraints.values()) > 0) == (trial.state == State.INFEASIBLE)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_gives_same_proposals(tmp_path, kind):
    params = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        driver = make_driver(tmp_path / name, make_plan(12), kind=kind, seed=seed)
        driver.run()
        params.append([trial.params for trial in driver.trials])
    assert params[0] == params[1] != params[2]


@pytest.mark.full
@pytest.mark.parametrize("damage", ["deleted", "garbage", "half", "other"])
def test_journal_is_rebuilt_from_the_log(tmp_path, damage):
    make_driver(tmp_path / "whole", make_plan(12)).run()
    make_driver(tmp_path / "parts", make_plan(6)).run()
    file = tmp_path / "parts" / "optuna.journal"
    if damage == "deleted":
        file.unlink()
    elif damage == "garbage":
        file.write_bytes(b"not a database at all" * 500)
    elif damage == "half":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        make_driver(tmp_path / "other", make_plan(3), seed=9).run()
        file.write_bytes((tmp_path / "other" / "optuna.journal").read_bytes())
    driver = make_driver(tmp_path / "parts", make_plan(12))
    driver.run()
    driver.export.close()
    whole = StudyDir(tmp_path / "whole").load().trials
    assert [trial.params for trial in driver.trials] == [trial.params for trial in whole]
    exported_study = optuna.load_study(study_name="fake",
                              storage=JournalStorage(JournalFileBackend(str(file))))
    assert sorted(trial.user_attrs["trial"] for trial in exported_study.trials) == [
        trial.number for trial in whole
    ]


def test_exhausted_space_ends_study_with_reason(tmp_path):
    driver = make_driver(tmp_path, make_plan(50, most=200, max_proposals=150))
    driver.run()
    assert not driver.trials.with_state(State.DUPLICATE)
    ids = {trial.architecture for trial in driver.trials.with_state(State.COMPLETE)}
    reachable = [architecture_of({"width": w, "depth": d, "kind": k}) for w in (8,) for d in (1, 2)
                 for k in ("plain", "gated")]
    assert ids == {architecture.id for architecture in reachable}


def test_exhausted_sampler_ends_study_with_reason(tmp_path):
    driver = make_driver(tmp_path, make_plan(50), kind="random")
    calls = count()
    ask = driver.search.ask

    def ask_thrice(sampler):
        if next(calls) == 3:
            raise SpaceExhaustedError
        return ask(sampler)

    driver.search.ask = ask_thrice
    assert driver.run().endswith("3 of 50 candidates trained")


def test_record_has_seed_curve_and_versions(tmp_path):
    driver = make_driver(
        tmp_path, make_plan(2, record_fields={"study_seed": 7, "protocol": {"name": "forward"}})
    )
    driver.run()
    trial = driver.trials.with_state(State.COMPLETE)[0]
    record = driver.study.record(trial)
    assert record["architecture"] == trial.architecture and record["seed"] == 7
    assert record["values"]["bleu"] == pytest.approx(score(record["config"]))
    assert record["costs"]["params.total"] == record["values"]["params.total"]
    assert record["curve"] == [{"step": 1, "validation_loss": 2.0}] and record["versions"]["torch"]
    assert record["is_feasible"] is True


def test_crashed_jobs_are_retried_and_recorded(tmp_path):
    driver = make_driver(tmp_path / "heals", make_plan(2, attempts=3), work=breaking_work)
    assert driver.run() == "2 candidates trained"
    assert {trial.crashes for trial in driver.trials.with_state(State.COMPLETE)} == {2}

    driver = make_driver(tmp_path / "fails", make_plan(4, attempts=2), work=breaking_work)
    with refuses("too-many-failed", "RuntimeError: the worker broke"):
        driver.run()
    lost = driver.trials.with_state(State.FAILED)
    assert driver.study.record(lost[0])["reason"] == "RuntimeError: the worker broke"
    assert {trial.state.name for trial in driver.search.study.trials} <= {"FAIL", "PRUNED"}


def test_study_without_a_complete_trial_is_an_error(tmp_path):
    """A space of four configurations that fail is used up before too many have failed."""
    plan = make_plan(50, most=200, max_proposals=150, attempts=1)
    driver = make_driver(tmp_path, plan, work=breaking_work)
    with refuses("too-many-failed", "all 4 trials"):
        driver.run()


def replicates_with(folder, *causes):
    """Train two candidates; then return a driver whose replicates crash by ``causes``."""
    make_driver(folder, make_plan(2), work=noisy_work).run()
    runner = FaultyRunner(noisy_work, *causes)
    return make_driver(folder, seeded_plan(2, Seeds(2, 3, 0.9)), runner=runner)


def test_lost_node_costs_a_replicate_no_attempt(tmp_path):
    driver = replicates_with(tmp_path, *[CRASH_LOST] * 4, CRASH_FAULT, CRASH_FAULT)
    driver.run()
    first, *others = driver.trials.replicates()
    assert (first.state, first.attempts, first.crashes) == (State.COMPLETE, 7, 2)
    assert {trial.state for trial in others} <= {State.COMPLETE}


def test_full_disk_stops_replicates_that_can_be_resumed(tmp_path):
    driver = replicates_with(tmp_path, CRASH_DISK_FULL)
    with pytest.raises(DiskFullError, match="injected"):
        driver.run()
    replicate, = driver.trials.replicates()
    assert (replicate.state, replicate.attempts, replicate.crashes) == (State.PENDING, 1, 0)
    resumed = replicates_with(tmp_path)
    resumed.run()
    assert resumed.trials[replicate.number].state == State.COMPLETE


@pytest.mark.parametrize("metrics", [{}, {"bleu": None}, {"bleu": float("inf")}])
def test_result_without_objective_is_a_failure(tmp_path, metrics):
    def work(folder):
        (tmp_path / "trials" / folder.rsplit("/", 1)[1] / "result.json").write_text(
            json.dumps({"state": "complete", "metrics": metrics})
        )

    driver = make_driver(tmp_path, make_plan(1), work=work)
    with refuses("too-many-failed", "bleu"):
        driver.run()


def test_references_are_first_and_labeled(tmp_path):
    inside = {"width": 16, "depth": 2, "kind": "plain"}
    large = {"width": 64, "depth": 4, "kind": "plain"}
    references = (
        FixedArchitecture("base", architecture_of(inside), inside),
        FixedArchitecture("same", architecture_of(inside), inside),
        FixedArchitecture("large", architecture_of(large), large),
        FixedArchitecture("foreign", architecture_of({"width": 9, "depth": 3, "kind": "plain"})),
    )
    driver = make_driver(tmp_path, make_plan(4, references=references))
    driver.run()
    base, same, large, foreign, *others = driver.trials
    assert [base.label, same.state, foreign.label] == ["base", State.DUPLICATE, "foreign"]
    assert large.state == State.COMPLETE and not large.is_feasible and not foreign.is_in_space
    assert sum(trial.state == State.COMPLETE for trial in others) == 4
    numbers = [trial.user_attrs["trial"] for trial in driver.search.study.trials]
    assert numbers == [0, 1, 2] + [trial.number for trial in others]
    queued = ["fixed_params" in trial.system_attrs for trial in driver.search.study.trials]
    assert queued == [True, True, True] + [False] * len(others), (
        "references inside the space are enqueued in Optuna"
    )
    assert foreign.architecture not in {trial.architecture
                                        for trial in others} and base.architecture not in {
        trial.architecture for trial in others if trial.state == State.COMPLETE}


@pytest.mark.parametrize("trials", [0, 2])
def test_references_are_identified_by_name(tmp_path, trials):
    """A replaced reference is trained, with and without other trials."""
    architectures = {
        name: FixedArchitecture(name, architecture_of(params), params)
        for name, params in (
            (name, {"width": 8 * size, "depth": 1, "kind": "plain"})
            for size, name in enumerate("abc", 1)
        )
    }
    for names in ("ab", "ac"):
        driver = make_driver(
            tmp_path, make_plan(trials, references=tuple(architectures[name] for name in names))
        )
        ended = driver.run()
    states = {trial.label: trial.state for trial in driver.trials.with_origin(Origin.REFERENCE)}
    assert states == dict.fromkeys("abc", State.COMPLETE)
    assert trials or ended == "2 of 2 architectures trained"


def test_results_are_written_before_callbacks(tmp_path):
    """Log and record contain a result before Optuna and callbacks receive it."""
    ended = []

    class Listener(Callback):
        def ended(self, trial):
            study = StudyDir(tmp_path).load()
            assert study.trials[trial.number] == trial and trial.state == State.COMPLETE
            assert study.record(trial)["values"] == trial.values
            ended.append(trial.number)

    make_driver(tmp_path, make_plan(5), view=Listener()).run()
    assert len(ended) == 5


def test_proposal_is_logged_before_training(tmp_path):
    def work(folder):
        trials = StudyDir(tmp_path).load().trials
        assert folder.rsplit("/", 1)[1] in {
            trial.folder for trial in trials.with_state(State.PENDING) if trial.attempts}
        fake_work(folder)

    assert make_driver(tmp_path, make_plan(4), work=work).run() == "4 candidates trained"


@pytest.mark.full
def test_study_with_sqlite_storage(tmp_path):
    url = f"sqlite:///{tmp_path}/shared.db"
    driver = make_driver(tmp_path / "one", make_plan(4), storage=url)
    driver.run()
    driver.export.close()
    assert optuna.load_study(study_name="fake", storage=url).best_trials
    assert not (tmp_path / "one" / "optuna.journal").exists()
    make_driver(tmp_path / "one", make_plan(6), storage=url).run()
    assert len(StudyDir(tmp_path / "one").load().trials.with_state(State.COMPLETE)) == 6


def test_unreachable_storage_is_reported_without_password(tmp_path):
    with refuses("storage-unreachable", place="storage:") as error:
        make_driver(tmp_path, storage="postgresql://ann:secret@localhost:1/db")
    assert "secret" not in str(error.value)


def test_fake_space_has_infeasible_and_unbuildable_candidates():
    candidate = make_plan().evaluator.evaluate({"width": 64, "depth": 8, "kind": "plain"})
    assert candidate.constraints == {"buildable": 1.0,
                                     "params.total <= 6000": 0.0} and not candidate.is_feasible
    assert candidate.reason == "depth: 8 layers of 64 do not fit"
    assert len(FakeSpace().parameters()) == 4


def test_candidates_of_bayes_are_new_and_distinct(tmp_path, monkeypatch):
    """Many slopes describe the same network here, so different parameters are not enough."""
    driver = make_driver(tmp_path, make_plan(7), kind="bayes", storage=False)
    pools = []
    sampler = driver.proposals.sampler
    pool_of = sampler._candidate_pool
    monkeypatch.setattr(sampler, "_candidate_pool",
                        lambda ask: pools.append((ask, pool_of(ask))) or pools[-1][1])
    driver.run()
    assert pools
    for ask, pool in pools:
        networks = [ask.facts.identity(candidate.params) for candidate in pool]
        assert len(set(networks)) == len(networks) > 1 and not set(networks) & set(ask.identities)
