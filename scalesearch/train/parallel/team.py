"""Processes of one training run that communicate and end together.

They are started here or by Ray.

Rank 0 is the leader: only it reads data, decides, validates and writes. The others are followers:
they wait for a message, compute their shard of an update, and wait again. Processes therefore
cannot diverge because of something that only one of them observes, such as a signal, a clock or a
full disk.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing import parent_process
from multiprocessing.resource_tracker import ensure_running
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from scalesearch.errors import UserError
from scalesearch.signals import STOP_SIGNALS

# followers wait while the leader decodes; the connections of a dead process close at once
TIMEOUT = timedelta(days=7)
START_SECONDS = 300.0  # for all processes to load PyTorch, on a busy machine
REASON_SECONDS = 10.0  # for a lost process to write its traceback
END_SECONDS = 10.0
END_MESSAGE = ("end", None)


class ProcessLostError(RuntimeError):
    """Error: another process of this run ended or cannot be reached."""


@contextmanager
def _detecting_loss() -> Iterator[None]:
    """Context of a collective call; raises ProcessLostError if another process ended."""
    try:
        yield
    except RuntimeError as error:
        first_line = str(error).splitlines()[0]
        raise ProcessLostError("another process of this training run cannot be reached: "
                               f"{first_line}") from error


class Team:
    """Group of the processes of one training run.

    All processes construct it at the same time. Messages are Python values and use gloo; gradients
    use the default process group.

    Attributes:
        rank: of this process; 0 is the leader.
        size: number of processes.
    """

    @_detecting_loss()
    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._hosts = dist.new_group(backend="gloo", timeout=TIMEOUT)

    @_detecting_loss()
    def scatter(self, messages: list[Any]) -> None:
        """Send one message to each process, from the leader; the first is unused."""
        dist.scatter_object_list([None], messages, src=0, group=self._hosts)

    def broadcast(self, message: Any) -> None:
        """Send the same message to all processes, from the leader."""
        self.scatter([message] * self.size)

    @_detecting_loss()
    def receive(self) -> Any:
        """Wait for the next message, as a follower."""
        message: list[Any] = [None]
        dist.scatter_object_list(message, None, src=0, group=self._hosts)
        return message[0]

    @_detecting_loss()
    def gather(self, value: Any) -> list[Any]:
        """Gather values by rank at the leader; returns an empty list at followers."""
        values: list[Any] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(value, values, dst=0, group=self._hosts)
        return values or []

    @_detecting_loss()
    def sum(self, numbers: Tensor) -> Tensor:
        """Sum a tensor on the host over all processes, in place."""
        dist.all_reduce(numbers, group=self._hosts)
        return numbers

    @_detecting_loss()
    def call(self, collective: Callable[[], object]) -> None:
        """Call ``collective``, which reduces tensors with the default process group."""
        collective()


@contextmanager
def local_team(size: int, cuda: bool, threads: int | None,
               follow: Callable[[Team], object]) -> Iterator[Team]:
    """Context with a team of ``size`` processes on this machine, led by this process.

    Args:
        cuda: gradients use NCCL, and each process has its own GPU.
        threads: per process; None divides the threads of this process.
        follow: function that the followers call; it must be importable, since they are new
            processes.

    Raises:
        UserError: there are not enough GPUs.
        ProcessLostError: a follower ended; the message has the reason.
    """
    if cuda and torch.cuda.device_count() < size:
        raise UserError(f"processes: {size} processes need one GPU each, and PyTorch finds "
                        f"{torch.cuda.device_count()}; use fewer processes, or device cpu",
                        code="no-gpu")
    threads_before = torch.get_num_threads()
    threads_per_process = threads or max(1, threads_before // size)
    store = dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
    followers = _start(size, store.port, cuda, threads_per_process, follow)
    try:
        torch.set_num_threads(threads_per_process)
        _await_start(store, size, followers)
        with _joined(store, 0, size, cuda) as team:
            yield team
            team.broadcast(END_MESSAGE)
            deadline = time.monotonic() + END_SECONDS
            for process in followers.processes:
                process.join(max(0.0, deadline - time.monotonic()))
    except ProcessLostError as error:
        raise ProcessLostError(_loss_reason(followers) or str(error)) from None
    finally:
        torch.set_num_threads(threads_before)
        for process in followers.processes:
            process.kill()  # followers hold no state that is needed
            process.join()


def _start(size: int, port: int, cuda: bool, threads: int,
           follow: Callable[[Team], object]) -> mp.ProcessContext:
    """Start the followers with blocked signals, which only the leader handles."""
    # the resource tracker unblocks signals when it starts, so start it before blocking
    ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        return mp.start_processes(_follower, (size, port, cuda, threads, follow), size - 1,
                                  join=False, daemon=True, start_method="spawn")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _follower(index: int, size: int, port: int, cuda: bool, threads: int,
              follow: Callable[[Team], object]) -> None:
    """Run the process of rank ``index + 1``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    store = dist.TCPStore("127.0.0.1", port, size, is_master=False)
    store.set(f"here/{index + 1}", "")
    # The leader reports the loss of a process in more detail.
    with suppress(ProcessLostError), _joined(store, index + 1, size, cuda) as team:
        follow(team)


def _end_with_parent() -> None:
    """End this process as soon as its parent ends."""
    parent = parent_process()
    assert parent is not None, "only followers call this function"
    parent.join()
    os._exit(1)


def _await_start(store: dist.TCPStore, size: int, followers: mp.ProcessContext) -> None:
    """Wait until all followers have started.

    Raises:
        ProcessLostError: a follower ended before, or the time is over.
    """
    deadline = time.monotonic() + START_SECONDS
    while not store.check([f"here/{rank}" for rank in range(1, size)]):
        has_ended = any(process.exitcode is not None for process in followers.processes)
        if has_ended or time.monotonic() > deadline:
            raise ProcessLostError(f"not all of {size} processes could be started within "
                                   f"{START_SECONDS:g} s")
        time.sleep(0.02)


@contextmanager
def _joined(store: dist.TCPStore, rank: int, size: int, cuda: bool) -> Iterator[Team]:
    """Context with the team of all processes that connect to ``store``."""
    if cuda:
        torch.cuda.set_device(rank)
    with _detecting_loss():
        dist.init_process_group("nccl" if cuda else "gloo", store=store, rank=rank, world_size=size,
                                timeout=TIMEOUT)
    try:
        yield Team()
    finally:
        dist.destroy_process_group()


def _loss_reason(followers: mp.ProcessContext) -> str:
    """Return why a follower ended: its error or signal; empty if unknown."""
    deadline = time.monotonic() + REASON_SECONDS
    try:
        while not followers.join(timeout=max(0.0, deadline - time.monotonic()), grace_period=0.1):
            if time.monotonic() > deadline:
                return ""
    except mp.ProcessRaisedException as error:
        last_line = str(error).strip().splitlines()[-1]
        return f"process {error.error_index + 1} of this training run failed: {last_line}"
    except mp.ProcessExitedException as error:
        process = f"process {error.error_index + 1} of this training run"
        if error.signal_name == "SIGKILL":
            return (f"{process} was ended by SIGKILL, which the system sends if it runs out of "
                    "memory")
        if error.signal_name:
            return f"{process} was ended by {error.signal_name}"
        return f"{process} ended with status {error.exit_code}"
    return ""
