"""Early stopping of searches: its condition, its message, and resumed studies."""

import json
import re
from dataclasses import replace

import msgspec
import pytest

from scalesearch.samplers.bayes.hypervolume_improvement import HypervolumeForecast
from scalesearch.samplers.candidate_sampler import CandidateSampler
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.sections import Seeds, StopSpec
from scalesearch.studies.config.values import ComputeAmount
from scalesearch.studies.engine.stopping import EarlyStopping
from scalesearch.studies.forecast import GAIN_FILE, read_gain
from scalesearch.studies.monitor.format import describe_gain
from scalesearch.studies.monitor.snapshot import StudyWatcher
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Origin, State
from tests.studies.fakes import architecture_of, make_driver, make_plan

NEVER = StopSpec(gain=1e-9)
SOON = StopSpec(gain=1e9)


def run(folder, stop, trials=12, **changes):
    driver = make_driver(folder, make_plan(trials, stop=stop, **changes), kind="bayes")
    return driver, driver.run()


def complete(folder):
    return len(StudyDir(folder).load().trials.with_state(State.COMPLETE))


def test_search_stops_at_small_expected_gain(tmp_path):
    driver, ended = run(tmp_path, SOON)
    assert ended.startswith("stopped, because the expected gain is less than 1e+09: 10 more ")
    assert complete(tmp_path) == driver.proposals.sampler.n_startup_trials
    gain = read_gain(tmp_path)
    assert describe_gain(gain) in ended
    numbers = re.findall("[0-9.]+", describe_gain(replace(gain, mean=2.0889, low=0.0, high=3.5322)))
    assert numbers == ["10", "209", "90", "0", "353", str(complete(tmp_path))]


def test_search_continues_at_large_gain_or_without_rule(tmp_path):
    for number, stop in enumerate((None, NEVER)):
        _, ended = run(tmp_path / str(number), stop, 8)
        assert ended == "8 candidates trained"
        gain = read_gain(tmp_path / str(number))
        assert (
            gain.completed_trials == 8
            and gain.full_runs == 10
            and 0 <= gain.low <= gain.mean <= gain.high
        )


def test_gain_counts_candidates_without_their_replicates(tmp_path):
    run(tmp_path, None, 6, seeds=Seeds(max_per_candidate=2, extra_runs=2))
    assert complete(tmp_path) == 8 and read_gain(tmp_path).completed_trials == 6


def test_snapshot_has_expected_gain(tmp_path):
    run(tmp_path, None, 6)
    shown = StudyWatcher(tmp_path).snapshot()
    assert (
        shown.expected_gain == read_gain(tmp_path)
        and msgspec.to_builtins(shown)["expected_gain"]["completed_trials"] == 6
    )
    (tmp_path / GAIN_FILE).write_text("{}")
    assert StudyWatcher(tmp_path).snapshot().expected_gain is None


def test_restart_stops_again_and_continues_without_rule(tmp_path):
    run(tmp_path, SOON)
    n_complete = complete(tmp_path)
    assert run(tmp_path, SOON)[1].startswith("stopped") and complete(tmp_path) == n_complete
    assert run(tmp_path, None)[1] == "12 candidates trained" and complete(tmp_path) == 12


def test_replicates_do_not_resume_a_stopped_search(tmp_path):
    plan = {"seeds": Seeds(max_per_candidate=2, extra_runs=2)}
    run(tmp_path, SOON, **plan)
    n_complete = complete(tmp_path)
    trials = StudyDir(tmp_path).load().trials
    assert trials.replicates()
    for stop in (SOON, StopSpec(gain=1e10)):
        driver = make_driver(tmp_path, make_plan(12, stop=stop, **plan), kind="bayes")
        assert driver.run().startswith("stopped") and complete(tmp_path) == n_complete
    assert all(trial.origin != Origin.SAMPLER
               for trial in StudyDir(tmp_path).load().trials.with_state(State.PENDING))


@pytest.mark.full
def test_smaller_threshold_resumes_search(tmp_path):
    plan = {"seeds": Seeds(max_per_candidate=2, extra_runs=2)}
    run(tmp_path / "stopped", SOON, **plan)
    assert run(tmp_path / "stopped", NEVER, **plan)[1].startswith("12 candidates trained")
    assert run(tmp_path / "whole", NEVER, 6, **plan)[1].startswith("6 candidates trained")
    assert StudyDir(tmp_path / "whole").load().trials.replicates()
    assert run(tmp_path / "whole", NEVER, 9, **plan)[1].startswith("9 candidates trained")


def test_added_reference_is_trained_after_stop(tmp_path):
    plan = {"seeds": Seeds(max_per_candidate=2, extra_runs=2)}
    run(tmp_path, SOON, **plan)
    late = {"width": 64, "depth": 4, "kind": "plain"}
    _, ended = run(tmp_path, SOON,
                   references=(FixedArchitecture("late", architecture_of(late), late),), **plan)
    (reference,) = StudyDir(tmp_path).load().trials.with_origin(Origin.REFERENCE)
    assert ended.startswith("stopped") and StudyDir(tmp_path).load().trials.resolve_duplicate(
        reference).state == State.COMPLETE


@pytest.mark.parametrize(("within", "slots", "ahead"),
                         [(ComputeAmount(7), 1, 7), (ComputeAmount(seconds=60), 1, 6),
                          (ComputeAmount(seconds=60), 4, 24), (ComputeAmount(seconds=1), 1, 1)])
def test_time_horizon_is_converted_to_runs(tmp_path, within, slots, ahead):
    run(tmp_path, None, 5)
    study = StudyDir(tmp_path).load()
    horizons = []
    for trial in study.trials.with_state(State.COMPLETE):
        msgspec.structs.force_setattr(trial, "wall_seconds", 10.0)

    class Sampler(CandidateSampler):
        def forecast_gain(self, history, n_runs):
            horizons.append(n_runs)
            return HypervolumeForecast(n_runs, 0.5, 0.4, 0.6)

    assert not EarlyStopping(study, StopSpec(gain=0.2, horizon=within), Sampler(), slots).reason([])
    assert EarlyStopping(study, StopSpec(gain=0.6, horizon=within), Sampler(), slots).reason([])
    assert horizons == [ahead, ahead]
    assert json.loads((tmp_path / GAIN_FILE).read_text())["full_runs"] == ahead
