"""A study with further seeds over the fake space: what is trained, what a restart finds, what people read."""

import io
import json
import random
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from scalesearch.pareto.noise import pool_noise
from scalesearch.samplers.trial_history import values_by_seed
from scalesearch.study.config.fixed_architectures import FixedArchitecture
from scalesearch.study.config.objectives import parse_objective
from scalesearch.study.config.sections import Seeds
from scalesearch.study.executors.base import JobCrashed, JobDone, Runner
from scalesearch.study.executors.worker import finish_job
from scalesearch.study.monitor.console import LineConsole, LiveConsole
from scalesearch.study.optuna_sync.search_study import SearchStudy
from scalesearch.study.replicates.allocation import NEIGHBORS
from scalesearch.study.replicates.summary import MIN_DF, SeedAnalysis
from scalesearch.study.results.publish import write_outputs
from scalesearch.study.results.results import load_results
from scalesearch.study.results.selection import select_trial
from scalesearch.study.trials.study_dir import StudyDir
from scalesearch.study.trials.trial import Origin, State
from tests.processes import ended, wait_until
from tests.study.engine.test_driver import trained
from tests.study.engine.test_promotion import RUNGS, rung_result
from tests.study.fakes import META, OBJECTIVES, FakeSpace, architecture_of, exported, make_driver, make_plan, score
from tests.study.noisy import luck, noisy_result, noisy_work, replicated, seeded_plan
from tests.study.slow_work import results


def make(folder, plan=None, work=noisy_work, **more):
    return make_driver(folder, plan or seeded_plan(), work=work, **more)


def either(folder):
    """Trains to a rung or to the end."""
    finish_job(Path(folder),
               lambda place, job: rung_result(place, job) if "until" in job
               else noisy_result(place, job))


def facts(trials):
    """All that a study has decided."""
    return [(t.number, t.origin, t.original, t.seed, t.state, t.params, t.rungs, t.values)
            for t in trials]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished study; its file's word on seeds is noted as ``study run`` notes it."""
    where = tmp_path_factory.mktemp("seeds") / "fake"
    driver = make(where)
    driver.study.update_meta(seeds=driver.plan.seeds)
    (where / "reason").write_text(driver.run())
    return where


def test_samplers_see_what_every_seed_came_to(folder):
    trials = StudyDir(folder).load().trials
    shown = SearchStudy(FakeSpace(), OBJECTIVES, trials).study.trials
    for trial in (one for one in trials.candidates() if one.state == State.COMPLETE):
        seeds = [one
                 for one in trials.replicates()
                 if one.original == trial.number and one.state == State.COMPLETE]
        values = [[one.values[name] for name in ("bleu", "params.total")]
                  for one in (trial, *seeds)]
        assert [list(each) for each in values_by_seed(shown[trial.number])] == values
    assert any(len(values_by_seed(one)) > 1 for one in shown if one.values)


def test_the_search_comes_first_and_then_the_front_with_seeds_of_its_own(folder):
    trials = StudyDir(folder).load().trials
    origins = [trial.origin for trial in trials if trial.state == State.COMPLETE]
    assert origins.count("sampler") == 6 and 2 <= origins.count(Origin.REPLICATE) <= 8
    assert origins == sorted(
        origins, key=lambda origin: origin == Origin.REPLICATE), "not before the search is over"
    for trial in trials.replicates():
        first = trials[trial.original]
        assert (trial.architecture, trial.costs, trial.params) == (
            first.architecture, first.costs, first.params)
        again = [other.seed for other in trials.replicates() if other.original == trial.original]
        assert again == list(range(2, 2 + len(again))) and len(again) <= 2
        job = json.loads((folder / "trials" / trial.folder / "job.json").read_text())
        assert (job["origin"], job["original"], job["seed"], job["trial"]) == (
            "replicate", trial.original, trial.seed, trial.number)
        record = StudyDir(folder).load().record(trial)
        assert (record["origin"], record["original"], record["seed"]) == (
            Origin.REPLICATE, trial.original, trial.seed)
        drawn = luck(first.architecture, trial.seed, 1.0)
        assert record["values"]["bleu"] == pytest.approx(score(first.config) + drawn)
    assert set(trained(folder).values()) == {1}


def test_the_search_and_optuna_hear_nothing_of_further_seeds(tmp_path):
    with_seeds = make(tmp_path / "a")
    without = make(tmp_path / "b", make_plan(6))
    with_seeds.run(), without.run()
    ours = {t.number: t.values for t in with_seeds.trials.candidates()}
    assert ours == {t.number: t.values for t in without.trials}
    for hears in (lambda driver: driver.search.study, exported):
        there = [{t.user_attrs["trial"]: (t.state, t.values) for t in hears(driver).trials}
                 for driver in (with_seeds, without)]
        assert there[0] == there[1] and len(there[0]) == len(ours)


def test_more_trials_later_propose_what_the_longer_study_would_have(tmp_path):
    """The numbers of proposals leave out the further seeds, so that what they are drawn from is the same."""
    make(tmp_path / "whole", make_plan(12)).run()
    make(tmp_path / "parts").run()
    parts = make(tmp_path / "parts", seeded_plan(12))
    parts.run()
    whole = StudyDir(tmp_path / "whole").load().trials
    assert [(t.params, t.values) for t in parts.trials.candidates()] == [
        (t.params, t.values) for t in whole]
    assert len(parts.search.study.trials) == len(exported(parts).trials) == len(whole)


@pytest.mark.full
@pytest.mark.parametrize("plan",
                         [seeded_plan(), seeded_plan(5, rungs=RUNGS), seeded_plan(50, most=200)])
def test_a_restart_after_every_event_ends_as_if_there_had_been_none(tmp_path, plan):
    whole = make(tmp_path / "whole", plan, either)
    reason = whole.run()
    for _ in range(400):
        driver = make(tmp_path / "cut", plan, either)
        driver.recover()
        if not (driver.submit_due() or driver.trials.with_state(State.PENDING)):
            break
        driver.runner.poll(0.1)  # trains one; that it has ended is never heard
    assert whole.trials.replicates() and facts(driver.trials) == facts(whole.trials)
    assert trained(tmp_path / "cut") == trained(tmp_path / "whole")
    assert make(tmp_path / "whole", plan, either).run() == reason


@pytest.mark.full
def test_a_study_killed_among_its_further_seeds_ends_as_the_uninterrupted_one(tmp_path):
    reason = make(tmp_path / "whole").run()
    pace = tmp_path / "cut" / "pace"
    pace.parent.mkdir()
    for seeds in (1, 3, None):
        pace.write_text(str(6 + (seeds or 1000)))  # with that many it waits to be killed
        process = subprocess.Popen([sys.executable, "-m", "tests.study.noisy", str(pace.parent)],
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if seeds:
            wait_until(lambda: results(pace.parent) >= 6 + seeds, process)  # noqa: B023 - called at once
            process.send_signal(signal.SIGKILL)
        status, out, err = ended(process)
        assert status == (-signal.SIGKILL if seeds else 0), err
    assert out == reason + "\n"
    mine, whole = (StudyDir(tmp_path / name).load().trials for name in ("cut", "whole"))
    assert facts(mine) == facts(whole) and len(whole.replicates()) > 3
    starts = trained(tmp_path / "cut")
    assert sum(starts.values()) <= len(starts) + 2, "what had its result was not trained again"


class Shuffled(Runner):
    """Three workers, whose jobs end in any order."""

    slots = 3

    def __init__(self, rng):
        self.jobs = []
        self.rng = random.Random(rng)
        self.widest = 0

    def submit(self, job):
        self.jobs.append(job)
        self.widest = max(self.widest, len(self.jobs))

    def poll(self, timeout):
        if not self.jobs:
            return []
        job = self.jobs.pop(self.rng.randrange(len(self.jobs)))
        noisy_work(str(job.folder))
        return [JobDone(job)]

    def stop(self, grace=10.0):
        self.jobs.clear()


@pytest.mark.parametrize("rng", range(4))
def test_several_workers_keep_to_what_is_allowed(tmp_path, rng):
    runner = Shuffled(rng)
    driver = make(tmp_path, seeded_plan(8, seeds=Seeds(3, 5)), runner=runner)
    driver.run()
    assert runner.widest == 3 and 2 <= len(driver.trials.replicates()) <= 5
    pairs = [(trial.original, trial.seed) for trial in driver.trials.replicates()]
    assert len(set(pairs)) == len(pairs) and {seed for _, seed in pairs} <= {2, 3}
    numbers = [trial.number for trial in driver.trials]
    assert numbers == list(range(len(numbers)))


def test_without_the_key_nothing_is_trained_again(tmp_path):
    driver = make(tmp_path, make_plan(6))
    assert driver.run() == "6 candidates trained" and not driver.trials.replicates()


def test_seeds_may_be_asked_for_once_a_study_is_over(tmp_path):
    make(tmp_path, make_plan(6)).run()
    driver = make(tmp_path, seeded_plan(6))
    assert driver.run().startswith("6 candidates trained, then ") and driver.trials.replicates()


def test_a_reference_on_the_front_is_trained_again_and_one_from_elsewhere_is_not(tmp_path):
    good = {"width": 8, "depth": 1, "kind": "plain"}
    references = (FixedArchitecture("small", architecture_of(good), good),
                  FixedArchitecture("foreign",
                                    architecture_of({"width": 9, "depth": 3, "kind": "plain"})))
    driver = make(tmp_path, seeded_plan(3, references=references))
    driver.run()
    again = driver.trials.replicates()
    assert {trial.label for trial in again if trial.original == 0} == {"small"} and 1 not in {
        trial.original for trial in again}
    table = load_results(tmp_path).table
    assert table.loc[table["label"] == "small",
                     "seeds"].tolist() == [1 + sum(trial.original == 0 for trial in again)]


def test_a_seed_that_fails_costs_its_place_and_is_told(tmp_path):
    class Failing(Shuffled):
        slots = 1

        def poll(self, timeout):
            job = self.jobs[0]
            if json.loads((job.folder / "job.json").read_text()).get("seed") == 2:
                return [JobCrashed(self.jobs.pop(0), "it diverged", can_retry=False)]
            return super().poll(timeout)

    driver = make(tmp_path, seeded_plan(6, seeds=Seeds(3, 6)), runner=Failing(0))
    reason = driver.run()
    lost = driver.trials.with_state(State.FAILED)
    assert lost and all(trial.origin == Origin.REPLICATE and trial.seed == 2 for trial in lost)
    assert len(driver.trials.replicates()) <= 6 and reason.startswith("6 candidates trained, then ")
    notes = "\n".join(load_results(tmp_path).notes())
    assert f"Trial {lost[0].original} failed with seed 2 (it diverged); its mean" in notes


def test_the_table_holds_means_and_their_noise_and_no_seed_as_a_candidate(folder):
    results = load_results(folder)
    trials = StudyDir(folder).load().trials
    assert len(results.table) == len(trials.candidates())
    rows = results.table.set_index("trial")
    samples = []
    for trial in trials.candidates():
        if trial.state != State.COMPLETE:
            assert pd.isna(rows.loc[trial.number, "seeds"]) and pd.isna(
                rows.loc[trial.number, "bleu.half_width"])
            continue
        scores = [trial.values["bleu"],
                  *(t.values["bleu"] for t in trials.replicates() if t.original == trial.number)]
        samples.append(scores)
        row = rows.loc[trial.number]
        assert row["seeds"] == len(scores) and row["bleu"] == pytest.approx(np.mean(scores))
        assert row["chrf"] == pytest.approx(row["bleu"] + 10) and row["test.bleu"] == pytest.approx(
            row["bleu"] - 1)
        assert row["seed"] == 1 and row["params.total"] == trial.values["params.total"]
        assert pd.isna(row["bleu.sd"]) if len(scores) == 1 else row["bleu.sd"] == pytest.approx(
            np.std(scores, ddof=1))
    noise = pool_noise(samples)
    halves = [noise.interval_half_width(0.9, len(sample)) for sample in samples]
    assert rows["bleu.half_width"].dropna().tolist() == pytest.approx(halves)
    assert sorted(results.front["trial"]) == sorted(results.seed_analysis.front_order.front)


def test_seeds_have_a_file_from_which_mean_and_deviation_can_be_had_again(folder, tmp_path):
    results = load_results(folder)
    files = write_outputs(results, tmp_path)
    assert [file.name for file in files][:3] == ["front.csv", "all.csv", "seeds.csv"]
    every = pd.read_csv(tmp_path / "seeds.csv")
    table = pd.read_csv(tmp_path / "all.csv").set_index("trial")
    assert (every.loc[every["trial"] == every["original"], "seed"] == 1).all()
    for number, scores in every.groupby("original")["bleu"]:
        assert table.loc[number, "bleu"] == pytest.approx(scores.mean())
        assert table.loc[number, "bleu.sd"] == pytest.approx(
            scores.std()) and table.loc[number, "seeds"] == len(scores)


def test_words_say_what_is_beyond_noise_and_what_within(folder):
    results = load_results(folder)
    verdict = results.seed_analysis
    order = verdict.front_order
    said = verdict.sentences()
    resolved = "is significant" if order.is_resolved else "is not significant"
    assert said[0].startswith(f"Membership of the front {resolved}, at 90 % per comparison "
                              "(intervals of 95 %")
    neighbors = [pair for pair in order.comparisons if pair.type == NEIGHBORS]
    assert len(neighbors) >= 2
    for pair, line in zip(neighbors, said[1:]):
        assert line.startswith(
            f"  trial {pair.first} (bleu ") and f" and trial {pair.second} (bleu " in line
        assert line.endswith(", significant" if pair.is_resolved else ", within noise")
    beside = [pair for pair in order.comparisons if pair.type != NEIGHBORS]
    assert all(f"trial {pair.second} (bleu " in "\n".join(said) for pair in beside)
    assert any(line.startswith("  off the front, but within noise of it: ")
               for line in said) == bool(beside)
    ties = [line
            for line in said
            if line.startswith("The order of the members' scores is not significant")]
    assert len(ties) == bool(order.ties())
    assert all(f"trials {one} and {other}" in ties[0] for one, other, _ in order.ties())
    notes = "\n".join(results.notes())
    assert "have further seeds, and their scores are means" in notes and "± is the 90 % interval" in notes
    assert "one seed per candidate" not in notes
    found = verdict.to_json()
    assert found["resolved"] == order.is_resolved and found["noise"]["bleu"]["df"] == found[
        "runs"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    ended = (folder / "reason").read_text()
    words = "comparisons on the front are significant" if order.is_resolved else "still within noise"
    assert ended.startswith(
        f"6 candidates trained, then {found['runs']} with further seeds; ") and words in ended


class Some(list):
    """Trials of a study, given one by one."""

    def replicates(self):
        return [trial for trial in self if trial.origin == Origin.REPLICATE]

    def candidates(self):
        return [trial for trial in self if trial.origin != Origin.REPLICATE]


def verdict_of(*candidates, objectives):
    trials = Some(trial for one in candidates for trial in (one.first, *(
        replace(trial, origin=Origin.REPLICATE, original=one.number) for trial in one.replicates)))
    return SeedAnalysis(trials, replace(META, objectives=objectives, seeds=Seeds(2, 9)))


def test_an_order_that_noise_may_have_made_is_not_called_settled():
    """Members that cost less of one thing and more of another are both on the front, whatever their scores are."""
    objectives = (*OBJECTIVES, parse_objective("macs.total", "min"))
    one = replicated(0, {"params.total": 1, "macs.total": 9}, {"bleu": 25.6}, {"bleu": 27.2})
    other = replicated(1, {"params.total": 9, "macs.total": 1}, {"bleu": 23.4})
    verdict = verdict_of(one, other, objectives=objectives)
    said = "\n".join(verdict.sentences())
    assert verdict.front_order.is_resolved and verdict.to_json()[
        "resolved"] and not verdict.to_json()["order_resolved"]
    assert "Membership of the front is significant" in said and "trials 1 and 0 (bleu +3" in said
    assert "known with 1 degree of freedom" in said
    assert "not significant" in said.partition("order of the members")[2]


@pytest.mark.parametrize("df", [1, 4, 5, 9])
def test_a_noise_of_few_degrees_of_freedom_comes_with_a_caution(df):
    candidates = [replicated(at, {"params.total": 1 + at}, {"bleu": 10.0 * at},
                             {"bleu": 10.0 * at + 0.01}) for at in range(df)]
    verdict = verdict_of(*candidates, objectives=OBJECTIVES)
    said = "\n".join(verdict.sentences())
    assert verdict.front_order.df == df and ("Caution" in said) == (df < MIN_DF)
    assert "order of the members' scores" not in said


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 30, width=32), min_size=2, max_size=6), st.floats(0.01, 5),
       st.integers(0, 99))
def test_words_on_the_order_follow_from_the_intervals(truth, sd, seed):
    rng = random.Random(seed)
    scores = [[{"bleu": rng.gauss(mean, sd)} for _ in range(rng.randint(1, 3))] for mean in truth]
    candidates = [replicated(at, {"params.total": at}, *sample) for at, sample in enumerate(scores)]
    verdict = verdict_of(*candidates, objectives=OBJECTIVES)
    order = verdict.front_order
    said = "\n".join(verdict.sentences())
    members = [next(one for one in candidates if one.number == number) for number in order.front]
    members.sort(key=lambda one: (one.mean("bleu"), one.number))
    near = [(one.number, other.number)
            for one, other in pairwise(members)
            if other.mean("bleu") - one.mean("bleu")
            <= order.noise["bleu"].interval_half_width(order.level, one.completed_seeds, other.completed_seeds)]
    assert [(one, other) for one, other, _ in order.ties()] == near
    assert ("order of the members' scores is not significant" in said) == bool(near and order.df)


def test_export_takes_the_first_seed_of_the_best_mean_or_the_seed_that_is_asked_for(folder):
    results = load_results(folder)
    number, why = select_trial(results, "bleu", None)
    assert number == results.front.loc[results.front["bleu"].astype(float).idxmax(), "trial"]
    assert why.endswith("; the weights are those of seed 1)") and "±" in why
    again = results.study.trials.replicates()[0]
    assert select_trial(results, None, again.number) == (
        again.number, f"trial {again.original} with seed {again.seed}, selected by number")


def test_people_see_which_seed_of_which_trial_is_trained(tmp_path):
    said = []
    shown = []

    def work(folder):
        console.print(screen.render(110))
        shown.append(console.file.getvalue())
        noisy_work(folder)

    console = Console(file=io.StringIO(), width=110)
    driver = make(tmp_path, view=LineConsole(said.append), work=work)
    screen = LiveConsole(driver.study)
    driver.run()
    first = driver.trials.replicates()[0]
    begun = f"trial {first.number} [seed 2 of trial {first.original}] ({first.architecture}) in training"
    assert any(begun in line for line in said)
    assert f"{first.original}, seed 2" in shown[-1] and "further seeds" in shown[
        -1] and "6 of 6" in shown[-1]


def test_infeasible_proposals_are_no_candidates_for_seeds(folder):
    trials = StudyDir(folder).load().trials
    trained_again = {trial.original for trial in trials.replicates()}
    assert not trained_again & {trial.number for trial in trials.with_state(State.INFEASIBLE)}


def test_rungs_and_seeds_together_train_the_seeds_to_the_end(tmp_path):
    driver = make(tmp_path, seeded_plan(5, rungs=RUNGS), either)
    driver.run()
    assert driver.trials.replicates() and all(
        not trial.rungs for trial in driver.trials.replicates())
