"""Teams of processes: failures end all processes with a reason."""

import os
import signal
from pathlib import Path

import pytest
import torch

from scalesearch.train import train
from scalesearch.train.parallel.gradients import run_follower
from scalesearch.train.parallel.team import ProcessLostError, Team, local_team
from scalesearch.train.updates import engine as engines
from tests.errors import refuses
from tests.train.conftest import recipe, tiny
from tests.train.parallel.test_gradients import DETERMINISTIC, check_close


def tight_follow(team: Team) -> None:
    """Run a follower with memory for at most eight sentences."""
    limit_memory(8)
    run_follower(team)


def limit_memory(max_sentences: int) -> None:
    """Raise out-of-memory errors for training batches above ``max_sentences`` sentences."""
    original = engines.Engine.loss_sum

    def limited(self, batch, smoothing):
        if self.model.training and len(batch) > max_sentences:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, batch, smoothing)

    engines.Engine.loss_sum = limited


def starved_follow(team: Team) -> None:
    """Run a follower without memory for any sentence."""
    limit_memory(0)
    run_follower(team)


def test_out_of_memory_of_a_follower_splits_batches_everywhere(corpus, tmp_path) -> None:
    run_recipe = recipe(**DETERMINISTIC, lr=1e-3, accumulate=2)
    undisturbed = train(tiny(), corpus, run_recipe, tmp_path / "calm")
    with local_team(2, False, 1, tight_follow) as team:
        result = train(tiny(), corpus, run_recipe, tmp_path / "tight", team=team)
    assert "out of memory; from now on, batches are split into" in result.notes[0]
    check_close(undisturbed, result)
    with local_team(2, False, 1, starved_follow) as team:
        failed = train(tiny(), corpus, run_recipe, tmp_path / "starved", team=team)
    assert failed.state == "failed" and "even with one sentence at a time" in failed.reason


def broken_follow(team: Team) -> None:
    """Run a follower whose third update raises an exception."""
    original = engines.Engine.step
    updates = [0]

    def step(self, share, lr):
        updates[0] += 1
        if updates[0] == 3:
            raise ValueError("this process is broken")
        return original(self, share, lr)

    engines.Engine.step = step
    run_follower(team)


def dying_follow(team: Team) -> None:
    """Run a follower that is killed in its third update."""
    original = engines.Engine.step
    updates = [0]

    def step(self, share, lr):
        updates[0] += 1
        if updates[0] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, share, lr)

    engines.Engine.step = step
    run_follower(team)


def unable_to_start(team: Team) -> None:
    """Fail at the start."""
    raise RuntimeError("no such library")


@pytest.mark.parametrize(
    ("others", "expected_text"),
    [(broken_follow, "process 1 of this training run failed: ValueError: this process is broken"),
     (dying_follow, "process 1 of this training run was ended by SIGKILL, which the system sends"),
     (unable_to_start, "process 1 of this training run failed: RuntimeError: no such library")])
def test_failed_process_ends_the_others_with_its_reason(
        corpus, out: Path, others, expected_text: str) -> None:
    with pytest.raises(ProcessLostError, match=expected_text), local_team(
            2, False, 1, others) as team:
        train(tiny(), corpus, recipe(), out, team=team)
    assert not torch.distributed.is_initialized()
    assert train(tiny(), corpus, recipe(), out.with_name("after")).state == "complete"


@pytest.mark.skipif(torch.cuda.device_count() >= 2, reason="needs fewer than two GPUs")
def test_missing_gpus_are_refused() -> None:
    with refuses("no-gpu", 2, place="processes:"), local_team(2, True, 1, run_follower):
        pass
