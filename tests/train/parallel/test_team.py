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
from tests.train.parallel.test_gradients import STILL, close


def tight_follow(team: Team) -> None:
    """Follow with memory for at most eight sentences."""
    without_memory_for(8)
    run_follower(team)


def without_memory_for(most: int) -> None:
    honest = engines.Engine.loss_sum

    def tight(self, batch, smoothing):
        if self.model.training and len(batch) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return honest(self, batch, smoothing)

    engines.Engine.loss_sum = tight


def starved_follow(team: Team) -> None:
    """Follow without any memory."""
    without_memory_for(0)
    run_follower(team)


def test_out_of_memory_of_a_follower_splits_batches_everywhere(corpus, tmp_path) -> None:
    how = recipe(**STILL, lr=1e-3, accumulate=2)
    calm = train(tiny(), corpus, how, tmp_path / "calm")
    with local_team(2, False, 1, tight_follow) as team:
        result = train(tiny(), corpus, how, tmp_path / "tight", team=team)
    assert "out of memory; from now on, batches are split into" in result.notes[0]
    close(calm, result)
    with local_team(2, False, 1, starved_follow) as team:
        failed = train(tiny(), corpus, how, tmp_path / "starved", team=team)
    assert failed.state == "failed" and "even with one sentence at a time" in failed.reason


def broken_follow(team: Team) -> None:
    """As follow, but the third update raises."""
    honest = engines.Engine.step
    updates = [0]

    def step(self, share, lr):
        updates[0] += 1
        if updates[0] == 3:
            raise ValueError("this process is broken")
        return honest(self, share, lr)

    engines.Engine.step = step
    run_follower(team)


def dying_follow(team: Team) -> None:
    """As follow, but the third update is the end."""
    honest = engines.Engine.step
    updates = [0]

    def step(self, share, lr):
        updates[0] += 1
        if updates[0] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return honest(self, share, lr)

    engines.Engine.step = step
    run_follower(team)


def unable_to_start(team: Team) -> None:
    """Ends before it has done anything."""
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


@pytest.mark.skipif(torch.cuda.device_count() >= 2, reason="there are GPUs enough")
def test_missing_gpus_are_refused() -> None:
    with refuses("no-gpu", 2, place="processes:"), local_team(2, True, 1, run_follower):
        pass
