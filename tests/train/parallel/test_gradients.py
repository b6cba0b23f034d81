"""Training with several processes equals training with one."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalesearch.data import make_batch
from scalesearch.signals import SignalInterrupt
from scalesearch.train import Result, train
from scalesearch.train.checkpoint import load_state
from scalesearch.train.parallel.gradients import run_follower, split_into_shards
from scalesearch.train.parallel.team import Team, local_team
from tests.errors import refuses
from tests.train.conftest import recipe, tiny
from tests.train.test_training import diverging, learned, stop_at, weights

DETERMINISTIC = {"dropout": 0, "attention_dropout": 0, "activation_dropout": 0, "device": "cpu",
                 "precision": "fp32"}
ROUNDING = 1e-6  # relative difference of sums in another order


@pytest.fixture(scope="module")
def two() -> Iterator[Team]:
    """A team of two processes led by this one; started once, because each loads PyTorch."""
    with local_team(2, False, 1, run_follower) as team:
        yield team


def check_close(result: Result, other: Result) -> None:
    """Assert that losses after equal updates are equal up to rounding."""
    assert len(result.curve) == len(other.curve) > 1
    for point, expected in zip(result.curve, other.curve):
        for key in ("step", "tokens", "lr"):
            assert point[key] == expected[key]
        for key in ("train_loss", "validation_loss"):
            assert point[key] == pytest.approx(expected[key], rel=ROUNDING)


@pytest.mark.parametrize(
    "changes",
    [
        {"accumulate": 2},
        {"accumulate": 3},  # the third batch is split
        {"accumulate": 1},
        # batches of one sentence, three per update for two processes
        {"accumulate": 3, "max_tokens": 1, "steps": 8},
        {"accumulate": 1, "max_tokens": 1, "steps": 8},  # one per update, so one process has none
        {"accumulate": 3, "weight_decay": 0.1, "label_smoothing": 0.0, "clip_norm": 0.05},
    ],
)
def test_two_processes_have_the_losses_of_one_process(corpus, tmp_path, two: Team, changes) -> None:
    # With a small eps, Adam would amplify gradients that are only rounding errors, such as those
    # of the bias of keys.
    run_recipe = recipe(**DETERMINISTIC, lr=1e-3, eps=1e-3, validate_every=1, **changes)
    single = train(tiny(), corpus, run_recipe, tmp_path / "one")
    parallel = train(tiny(), corpus, run_recipe, tmp_path / "two", team=two)
    check_close(single, parallel)
    assert (single.processes, parallel.processes, parallel.state) == (1, 2, "complete")
    first = weights(tmp_path / "one")
    second = weights(tmp_path / "two")
    assert all(torch.allclose(first[name], second[name], rtol=1e-4, atol=1e-5) for name in first)


@pytest.mark.parametrize(
    "changes", [{"encoder__depth": 2, "share__encoder__ffn": "one"}, {"embedding__tie": "none"}])
def test_shared_weights_are_summed_once(corpus, tmp_path, two: Team, changes) -> None:
    run_recipe = recipe(**DETERMINISTIC, lr=1e-3, steps=4, validate_every=1)
    subject = tiny(**changes)
    check_close(train(subject, corpus, run_recipe, tmp_path / "one"),
                train(subject, corpus, run_recipe, tmp_path / "two", team=two))


def test_resumed_parallel_run_with_dropout_is_exact(corpus, tmp_path, two: Team) -> None:
    run_recipe = recipe(accumulate=3)
    whole = train(tiny(), corpus, run_recipe, tmp_path / "whole", team=two)
    with pytest.raises(SignalInterrupt):
        train(tiny(), corpus, run_recipe, tmp_path / "parts", report=stop_at(4), team=two)
    assert load_state(tmp_path / "parts")["spent"]["steps"] == 4
    resumed = train(tiny(), corpus, run_recipe, tmp_path / "parts", team=two)
    assert learned(resumed) == learned(whole)
    whole_weights = weights(tmp_path / "whole")
    resumed_weights = weights(tmp_path / "parts")
    assert all(torch.equal(whole_weights[name], resumed_weights[name]) for name in whole_weights)


def test_dropout_differs_between_processes(corpus, tmp_path, two: Team) -> None:
    """With equal dropout masks, both processes together would have the loss of one."""
    results = [train(tiny(), corpus, recipe(steps=1, dropout=0.5, average="none"), tmp_path / name,
                     team=team) for name, team in (("one", None), ("two", two))]
    assert results[0].curve[0]["train_loss"] != pytest.approx(
        results[1].curve[0]["train_loss"], rel=1e-4)


def test_other_number_of_processes_is_refused(corpus, out, two: Team) -> None:
    train(tiny(), corpus, recipe(), out, team=two)
    with refuses("other-training", "processes was 2 and is now 1"):
        train(tiny(), corpus, recipe(), out)
    with refuses("below-one", place="processes:"):
        train(tiny(), corpus, recipe(), out.with_name("none"), processes=0)


def test_divergence_rolls_back_all_processes(corpus, tmp_path, monkeypatch, two: Team) -> None:
    undisturbed = train(tiny(), corpus, recipe(**DETERMINISTIC, lr=1e-3), tmp_path / "honest")
    diverging(monkeypatch, 6)
    parallel = train(tiny(), corpus, recipe(**DETERMINISTIC, lr=1e-3), tmp_path / "two", team=two)
    assert parallel.state == "complete" and "rolled back to update 0" in parallel.notes[0]
    monkeypatch.undo()
    diverging(monkeypatch, 6)
    single = train(tiny(), corpus, recipe(**DETERMINISTIC, lr=1e-3), tmp_path / "one")
    check_close(single, parallel)
    assert single.curve[-1]["lr"] == undisturbed.curve[-1]["lr"] / 2


def test_parallel_divergence_is_a_failed_result(corpus, out, two: Team) -> None:
    result = train(tiny(), corpus, recipe(lr=1e30, warmup=0, clip_norm=0, schedule="constant"), out,
                   team=two)
    assert result.state == "failed"
    assert "learning rate 5e+29" in result.reason and "again" in result.reason


def test_patience_stops_all_processes(corpus, out, two: Team) -> None:
    result = train(tiny(), corpus,
                   recipe(steps=100, lr=0.0, patience=2, validate_every=2, average="best"), out,
                   team=two)
    assert (result.stop_reason, result.steps) == ("patience", 6)


def test_cpu_time_includes_all_processes(corpus, tmp_path, two: Team) -> None:
    """The result includes CPU time beyond that of the leader."""
    start = time.process_time()
    result = train(tiny(), corpus, recipe(steps=40), tmp_path / "two", team=two)
    assert result.total_cpu_seconds > time.process_time() - start


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 299), min_size=1, max_size=9), min_size=1, max_size=7),
       st.integers(1, 5))
def test_each_sentence_is_in_one_shard(corpus, groups: list[list[int]], size: int) -> None:
    batches = [make_batch(corpus.train, np.array(group)) for group in groups]
    shares = split_into_shards(batches, size)
    sharded = [int(i) for share in shares for batch in share.batches for i in batch.indices]
    assert sorted(sharded) == sorted(i for group in groups for i in group)
    assert {share.update_tokens for share in shares} == {sum(batch.tokens for batch in batches)}
    assert sum(batch.tokens for share in shares
               for batch in share.batches) == shares[0].update_tokens
    counts = [len(share.batches) for share in shares]
    assert len(batches) % size or max(counts) == min(counts)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_have_the_losses_of_one_gpu(corpus, tmp_path) -> None:
    run_recipe = recipe(**{**DETERMINISTIC, "device": "cuda"}, lr=1e-3)
    single, parallel = (train(tiny(), corpus, run_recipe, tmp_path / str(n), processes=n)
                        for n in (1, 2))
    for point, other_point in zip(single.curve, parallel.curve):
        assert point["validation_loss"] == pytest.approx(other_point["validation_loss"], rel=1e-3)
