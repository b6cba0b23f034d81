"""A study with further seeds over the fake space: training, restarts, and reports."""

import io
import json
import random
import signal
import subprocess
import sys
from copy import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from scalesearch.cli.study.shared import print_trial, seed_analysis_to_json
from scalesearch.pareto.noise import pool_noise
from scalesearch.samplers.trial_history import values_by_seed
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.objectives import parse_objective
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.executors.base import JobCrashed, JobDone, Runner
from scalesearch.studies.executors.worker import finish_job
from scalesearch.studies.monitor.console import LineConsole, LiveConsole
from scalesearch.studies.monitor.snapshot import summarize_front
from scalesearch.studies.optuna_sync.search_study import SearchStudy
from scalesearch.studies.replicates.allocation import NEIGHBORS
from scalesearch.studies.replicates.summary import MIN_DF, SeedAnalysis
from scalesearch.studies.results.publish import write_outputs
from scalesearch.studies.results.results import load_results, select_best, select_by_number
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Origin, State
from tests.processes import ended, wait_until
from tests.studies.engine.test_driver import trained
from tests.studies.engine.test_promotion import RUNGS, rung_result
from tests.studies.fakes import (
    META,
    OBJECTIVES,
    FakeSpace,
    architecture_of,
    exported,
    make_driver,
    make_plan,
    score,
)
from tests.studies.noisy import luck, noisy_result, noisy_work, replicated, seeded_plan
from tests.studies.slow_work import results


def make(folder, plan=None, work=noisy_work, **more):
    return make_driver(folder, plan or seeded_plan(), work=work, **more)


def either(folder):
    """Train to a rung or to the end."""
    finish_job(Path(folder),
               lambda place, job: rung_result(place, job) if "until" in job
               else noisy_result(place, job))


def facts(trials):
    """All decisions of a study."""
    return [(t.number, t.origin, t.original, t.seed, t.state, t.params, t.rungs, t.values)
            for t in trials]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished study with the seeds recorded as by ``study run``."""
    path = tmp_path_factory.mktemp("seeds") / "fake"
    driver = make(path)
    (path / "reason").write_text(driver.run())
    return path


def test_samplers_read_the_scores_of_every_seed(folder):
    trials = StudyDir(folder).load().trials
    shown = SearchStudy(FakeSpace(), OBJECTIVES, trials).study.trials
    for trial in trials.candidates():
        if trial.state != State.COMPLETE:
            continue
        seeds = [replicate for replicate in trials.replicates()
                 if replicate.original == trial.number and replicate.state == State.COMPLETE]
        expected = [[run.values["bleu"], run.values["params.total"]] for run in (trial, *seeds)]
        assert [list(values) for values in values_by_seed(shown[trial.number])] == expected
    assert any(len(values_by_seed(trial)) > 1 for trial in shown if trial.values)


def test_further_seeds_of_the_front_follow_the_search(folder):
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


def test_search_and_optuna_copy_hold_no_further_seeds(tmp_path):
    with_seeds = make(tmp_path / "a")
    without = make(tmp_path / "b", make_plan(6))
    with_seeds.run(), without.run()
    candidates = {trial.number: trial.values for trial in with_seeds.trials.candidates()}
    assert candidates == {trial.number: trial.values for trial in without.trials}

    def values_of(study):
        return {trial.user_attrs["trial"]: (trial.state, trial.values) for trial in study.trials}

    for study_of in (lambda driver: driver.search.study, exported):
        copies = [values_of(study_of(driver)) for driver in (with_seeds, without)]
        assert copies[0] == copies[1] and len(copies[0]) == len(candidates)


def test_study_extended_after_its_seeds_proposes_as_a_longer_one(tmp_path):
    """Further seeds do not count as proposals, so the random state of proposals is the same."""
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
def test_restart_after_every_event_changes_nothing(tmp_path, plan):
    whole = make(tmp_path / "whole", plan, either)
    reason = whole.run()
    for _ in range(400):
        driver = make(tmp_path / "cut", plan, either)
        driver.recover()
        if not (driver.submit_due() or driver.trials.with_state(State.PENDING)):
            break
        driver.runner.poll(0.1)  # trains one, whose end is never processed
    assert whole.trials.replicates() and facts(driver.trials) == facts(whole.trials)
    assert trained(tmp_path / "cut") == trained(tmp_path / "whole")
    assert make(tmp_path / "whole", plan, either).run() == reason


@pytest.mark.full
def test_study_killed_during_further_seeds_ends_as_uninterrupted(tmp_path):
    reason = make(tmp_path / "whole").run()
    pace = tmp_path / "cut" / "pace"
    pace.parent.mkdir()
    for seeds in (1, 3, None):
        pace.write_text(str(6 + (seeds or 1000)))  # with this many results it waits to be killed
        process = subprocess.Popen([sys.executable, "-m", "tests.studies.noisy", str(pace.parent)],
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if seeds:
            wait_until(lambda: results(pace.parent) >= 6 + seeds, process)  # noqa: B023
            process.send_signal(signal.SIGKILL)
        status, out, err = ended(process)
        assert status == (-signal.SIGKILL if seeds else 0), err
    assert out == reason + "\n"
    mine, whole = (StudyDir(tmp_path / name).load().trials for name in ("cut", "whole"))
    assert facts(mine) == facts(whole) and len(whole.replicates()) > 3
    starts = trained(tmp_path / "cut")
    assert sum(starts.values()) <= len(starts) + 2, "finished runs were not trained again"


class Shuffled(Runner):
    """Three workers whose jobs end in any order."""

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
def test_several_workers_keep_the_limits(tmp_path, rng):
    runner = Shuffled(rng)
    driver = make(tmp_path, seeded_plan(8, seeds=Seeds(3, 5)), runner=runner)
    driver.run()
    assert runner.widest == 3 and 2 <= len(driver.trials.replicates()) <= 5
    pairs = [(trial.original, trial.seed) for trial in driver.trials.replicates()]
    assert len(set(pairs)) == len(pairs) and {seed for _, seed in pairs} <= {2, 3}
    numbers = [trial.number for trial in driver.trials]
    assert numbers == list(range(len(numbers)))


def test_no_further_seeds_without_the_key(tmp_path):
    driver = make(tmp_path, make_plan(6))
    assert driver.run() == "6 candidates trained" and not driver.trials.replicates()


def test_seeds_can_be_added_to_a_finished_study(tmp_path):
    make(tmp_path, make_plan(6)).run()
    driver = make(tmp_path, seeded_plan(6))
    assert driver.run().startswith("6 candidates trained, then ") and driver.trials.replicates()


def test_only_references_of_the_space_get_further_seeds(tmp_path):
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


def test_failed_seed_counts_and_is_reported(tmp_path):
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


def test_table_has_means_and_intervals_per_candidate(folder):
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


@pytest.mark.full
def test_seeds_file_reproduces_means_and_deviations(folder, tmp_path):
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


def test_report_distinguishes_significant_differences_from_noise(folder):
    results = load_results(folder)
    verdict = results.seed_analysis
    order = verdict.front_order
    lines = verdict.sentences()
    resolved = "is significant" if order.is_resolved else "is not significant"
    n_open = sum(not pair.is_resolved for pair in order.comparisons)
    within = f" ({n_open} of {len(order.comparisons)} comparisons within noise)" if n_open else ""
    assert lines[0].startswith(f"Membership of the front {resolved} at 90 % per comparison{within}"
                               ". Intervals are 95 %")
    same_level = copy(verdict)
    vars(same_level)["front_order"] = copy(order)
    same_level.front_order.level = verdict.confidence
    assert "Intervals are" not in same_level.sentences()[0]
    neighbors = [pair for pair in order.comparisons if pair.type == NEIGHBORS]
    assert len(neighbors) >= 2
    for pair, line in zip(neighbors, lines[1:]):
        assert line.startswith(
            f"  trial {pair.second} (bleu ") and f" minus trial {pair.first} (bleu " in line
        means = {candidate.number: candidate.mean("bleu") for candidate in results.view.candidates}
        sign = "+" if means[pair.second] > means[pair.first] else "-"
        assert f": bleu {sign}" in line
        assert line.endswith(", significant" if pair.is_resolved else ", within noise")
    challengers = [pair for pair in order.comparisons if pair.type != NEIGHBORS]
    assert all(f"trial {pair.second} minus trial {pair.first} (bleu " in "\n".join(lines)
               for pair in challengers)
    assert any(line.startswith("  off the front, but within noise of it: ")
               for line in lines) == bool(challengers)
    ties = [line for line in lines
            if line.startswith("The order of further members' scores is not significant")]
    listed = [{pair.first, pair.second} for pair in neighbors]
    further = [(first, second) for first, second, _ in order.ties()
               if {first, second} not in listed]
    assert len(ties) == bool(further)
    assert all(f"trial {second} minus trial {first}" in ties[0] for first, second in further)
    notes = "\n".join(results.notes())
    assert "have further seeds, and their scores are means" in notes
    assert "± is the 90 % interval" in notes
    assert "one seed per candidate" not in notes
    data = seed_analysis_to_json(verdict)
    assert data["resolved"] == order.is_resolved
    assert data["noise"]["bleu"]["df"] == data["runs"]
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    ended = (folder / "reason").read_text()
    assert ended.startswith(f"6 candidates trained, then {data['runs']} with further seeds; ")
    assert ("comparisons on the front are significant" if order.is_resolved
            else "still within noise") in ended


class TrialList(list):
    """Trials with the interface of a study's trials."""

    def replicates(self):
        return [trial for trial in self if trial.origin == Origin.REPLICATE]

    def candidates(self):
        return [trial for trial in self if trial.origin != Origin.REPLICATE]


def verdict_of(*candidates, objectives):
    trials = TrialList()
    for candidate in candidates:
        trials.append(candidate.first)
        trials += [trial.replace(origin=Origin.REPLICATE, original=candidate.number)
                   for trial in candidate.replicates]
    return SeedAnalysis(trials, replace(META, objectives=objectives, seeds=Seeds(2, 9)))


def test_order_within_noise_is_not_reported_as_significant():
    """Members with opposite orders of two costs are both on the front, for any scores."""
    objectives = (*OBJECTIVES, parse_objective("macs.total", "min"))
    first = replicated(0, {"params.total": 1, "macs.total": 9}, {"bleu": 25.6}, {"bleu": 27.2})
    second = replicated(1, {"params.total": 9, "macs.total": 1}, {"bleu": 23.4})
    verdict = verdict_of(first, second, objectives=objectives)
    text = "\n".join(verdict.sentences())
    assert verdict.front_order.is_resolved and seed_analysis_to_json(verdict)[
        "resolved"] and not seed_analysis_to_json(verdict)["order_resolved"]
    assert "Membership of the front is significant" in text
    assert "trial 0 minus trial 1 (bleu +3" in text
    assert "known with 1 degree of freedom" in text
    assert "not significant" in text.partition("order of further members")[2]


@pytest.mark.parametrize("df", [1, 4, 5, 9])
def test_few_degrees_of_freedom_print_a_caution(df):
    candidates = [replicated(n, {"params.total": 1 + n}, {"bleu": 10.0 * n},
                             {"bleu": 10.0 * n + 0.01}) for n in range(df)]
    verdict = verdict_of(*candidates, objectives=OBJECTIVES)
    text = "\n".join(verdict.sentences())
    assert verdict.front_order.df == df and ("Caution" in text) == (df < MIN_DF)
    assert "order of further members' scores" not in text


@settings(max_examples=40)
@given(st.lists(st.floats(0, 30, width=32), min_size=2, max_size=6), st.floats(0.01, 5),
       st.integers(0, 99))
def test_ties_follow_from_the_intervals(truth, sd, seed):
    rng = random.Random(seed)
    scores = [[{"bleu": rng.gauss(mean, sd)} for _ in range(rng.randint(1, 3))] for mean in truth]
    candidates = [replicated(number, {"params.total": number}, *sample)
                  for number, sample in enumerate(scores)]
    verdict = verdict_of(*candidates, objectives=OBJECTIVES)
    order = verdict.front_order
    text = "\n".join(verdict.sentences())
    members = sorted((candidates[number] for number in order.front),
                     key=lambda member: (member.mean("bleu"), member.number))
    near = [(first.number, second.number) for first, second in pairwise(members)
            if second.mean("bleu") - first.mean("bleu")
            <= order.noise["bleu"].interval_half_width(order.level, first.completed_seeds,
                                                       second.completed_seeds)]
    assert [(first, second) for first, second, _ in order.ties()] == near
    # with one cost, neighbors on the front are neighbors in the score, and are listed before
    assert "order of further members' scores" not in text
    for pair in order.neighbors:
        assert pair.is_resolved == ((pair.second, pair.first) not in near and (
            (pair.first, pair.second) not in near))


def test_export_selects_the_first_seed_of_the_best_mean(folder):
    results = load_results(folder)
    number, why = select_best(results, "bleu")
    assert number == results.front.loc[results.front["bleu"].astype(float).idxmax(), "trial"]
    assert why.endswith("; the weights are those of seed 1)") and "±" in why
    again = results.study.trials.replicates()[0]
    assert select_by_number(results, again.number) == (
        again.number, f"trial {again.original} with seed {again.seed}, selected by number")


def test_shown_trial_has_scores_of_one_seed_and_their_mean(folder):
    results = load_results(folder)
    member = next(member for member in results.view.members if member.completed_seeds > 1)
    text = io.StringIO()
    print_trial(results, member.number, Console(file=text, width=200))
    words = text.getvalue().split()
    assert f"bleu, mean of {member.completed_seeds} seeds {member.mean('bleu'):,.6g}" in " ".join(
        words)
    assert words.count("params.total") == 1


def test_best_trial_with_fewer_seeds_than_others_is_noted(folder):
    results = load_results(folder)
    rows = results.front
    best = rows["bleu"].astype(float).idxmax()
    assert rows["seeds"].drop(best).max() > 1
    rows.loc[best, "seeds"] = 1
    assert "one seed" in select_best(results, "bleu")[1]


def test_console_shows_trial_and_seed(tmp_path):
    lines = []
    shown = []

    def work(folder):
        console.print(screen.render(110))
        shown.append(console.file.getvalue())
        noisy_work(folder)

    console = Console(file=io.StringIO(), width=110)
    driver = make(tmp_path, view=LineConsole(lines.append), work=work)
    screen = LiveConsole(driver.study)
    driver.run()
    first = driver.trials.replicates()[0]
    started = (f"trial {first.number} [seed 2 of trial {first.original}] "
               f"({first.architecture}) in training")
    assert any(started in line for line in lines)
    for text in (f"{first.original}, seed 2", "further seeds", "6 of 6"):
        assert text in shown[-1]


def test_infeasible_proposals_get_no_seeds(folder):
    trials = StudyDir(folder).load().trials
    trained_again = {trial.original for trial in trials.replicates()}
    assert not trained_again & {trial.number for trial in trials.with_state(State.INFEASIBLE)}


def test_seeds_are_trained_to_the_end_without_rungs(tmp_path):
    driver = make(tmp_path, seeded_plan(5, rungs=RUNGS), either)
    driver.run()
    assert driver.trials.replicates() and all(
        not trial.rungs for trial in driver.trials.replicates())


def test_table_and_live_screen_show_the_front_of_the_view(folder):
    results = load_results(folder)
    view = results.view
    numbers = [member.number for member in view.members]
    volume, reference_point = results.hypervolume()
    assert numbers == sorted(results.front["trial"])
    assert view.hypervolume(view.values[view.on_front]) == pytest.approx(volume)
    front = summarize_front(results.view)
    assert front.size == len(numbers)
    assert front.hypervolume.value == pytest.approx(volume)
    assert list(front.hypervolume.reference_point.values()) == reference_point
