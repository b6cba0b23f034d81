"""Processes of one training, started here or by Ray, that communicate and end together.

Rank 0 leads: it alone reads data, decides, validates and writes. The others follow: they wait for a
message, do their shard of an update, and wait for the next. So nothing that only one process can
know (a signal, a clock, a full disk) can make them diverge.
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

# a follower waits while the leader decodes; a dead process closes its connections at once
TIMEOUT = timedelta(days=7)
START_SECONDS = 300.0  # until every process has loaded PyTorch, on a busy machine
REASON_SECONDS = 10.0  # for a lost process to write its traceback
END_SECONDS = 10.0
END_MESSAGE = ("end", None)


class ProcessLostError(RuntimeError):
    """Error: another process of this training ended or cannot be reached; the message says why."""


@contextmanager
def _detecting_loss() -> Iterator[None]:
    """Context of a collective call; raises ProcessLost where another process is gone."""
    try:
        yield
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise ProcessLostError(
            f"another process of this training cannot be reached: {first}") from error


class Team:
    """Group of the processes of one training.

    All of them construct it at the same time. Messages are Python values and go through gloo;
    gradients go through the default process group.

    Attributes:
        rank: of this process; 0 leads. size: number of processes.
    """

    @_detecting_loss()
    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._hosts = dist.new_group(backend="gloo", timeout=TIMEOUT)

    @_detecting_loss()
    def scatter(self, messages: list[Any]) -> None:
        """Sends one message to each process, from the leader; the first, its own, is unused."""
        dist.scatter_object_list([None], messages, src=0, group=self._hosts)

    def broadcast(self, message: Any) -> None:
        """Sends the same message to all, from the leader."""
        self.scatter([message] * self.size)

    @_detecting_loss()
    def receive(self) -> Any:
        """Waits for the next message, as a follower."""
        message: list[Any] = [None]
        dist.scatter_object_list(message, None, src=0, group=self._hosts)
        return message[0]

    @_detecting_loss()
    def gather(self, value: Any) -> list[Any]:
        """Gathers ``value`` of all processes by rank, at the leader; an empty list at followers."""
        values: list[Any] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(value, values, dst=0, group=self._hosts)
        return values or []

    @_detecting_loss()
    def sum(self, numbers: Tensor) -> Tensor:
        """Sums ``numbers`` of all processes, in place; a tensor on the host."""
        dist.all_reduce(numbers, group=self._hosts)
        return numbers

    @_detecting_loss()
    def call(self, collective: Callable[[], object]) -> None:
        """Calls ``collective``, which reduces tensors over the default process group."""
        collective()


@contextmanager
def local_team(size: int, cuda: bool, threads: int | None,
               follow: Callable[[Team], object]) -> Iterator[Team]:
    """Context with a team of ``size`` processes on this machine, led by this one.

    Args:
        cuda: gradients go through NCCL, and each process has a GPU of its own.
        threads: of each process; None shares out those of this one.
        follow: what the others call; a function of a module, since they are fresh processes.

    Raises:
        UserError: there are not as many GPUs.
        ProcessLost: one of the others ended, with its reason.
    """
    if cuda and torch.cuda.device_count() < size:
        raise UserError(f"processes: {size} of them need a GPU each, and PyTorch finds "
                        f"{torch.cuda.device_count()}; ask for fewer, or for device cpu",
                        code="no-gpu")
    before = torch.get_num_threads()
    each = threads or max(1, before // size)
    store = dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
    others = _start(size, store.port, cuda, each, follow)
    try:
        torch.set_num_threads(each)
        _await_start(store, size, others)
        with _joined(store, 0, size, cuda) as team:
            yield team
            team.broadcast(END_MESSAGE)
            until = time.monotonic() + END_SECONDS
            for process in others.processes:
                process.join(max(0.0, until - time.monotonic()))
    except ProcessLostError as error:
        raise ProcessLostError(_reason(others) or str(error)) from None
    finally:
        torch.set_num_threads(before)
        for process in others.processes:
            process.kill()  # nothing is lost: only the leader keeps and writes anything
            process.join()


def _start(size: int, port: int, cuda: bool, threads: int,
           follow: Callable[[Team], object]) -> mp.ProcessContext:
    """Starts the followers with signals blocked (a mask is inherited): the leader alone handles them."""
    ensure_running()  # it unblocks them when it starts, so not in the stretch below
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        return mp.start_processes(_follower, (size, port, cuda, threads, follow), size - 1,
                                  join=False, daemon=True, start_method="spawn")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _follower(index: int, size: int, port: int, cuda: bool, threads: int,
              follow: Callable[[Team], object]) -> None:
    """Main function of the process of rank ``index + 1``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    store = dist.TCPStore("127.0.0.1", port, size, is_master=False)
    store.set(f"here/{index + 1}", "")
    # The leader knows more of a process that is lost.
    with suppress(ProcessLostError), _joined(store, index + 1, size, cuda) as team:
        follow(team)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "only started processes come here"
    parent.join()
    os._exit(1)


def _await_start(store: dist.TCPStore, size: int, others: mp.ProcessContext) -> None:
    """Waits until all followers have started. Raises ProcessLost where one has died before."""
    until = time.monotonic() + START_SECONDS
    while not store.check([f"here/{rank}" for rank in range(1, size)]):
        if any(process.exitcode is not None
               for process in others.processes) or time.monotonic() > until:
            raise ProcessLostError(f"not all of {size} processes could be started within "
                                   f"{START_SECONDS:g} s")
        time.sleep(0.02)


@contextmanager
def _joined(store: dist.TCPStore, rank: int, size: int, cuda: bool) -> Iterator[Team]:
    """Team of the processes that meet at ``store``; closes its connections at the end."""
    if cuda:
        torch.cuda.set_device(rank)
    with _detecting_loss():
        dist.init_process_group("nccl" if cuda else "gloo", store=store, rank=rank, world_size=size,
                                timeout=TIMEOUT)
    try:
        yield Team()
    finally:
        dist.destroy_process_group()


def _reason(others: mp.ProcessContext) -> str:
    """Reason why a process died: its error or signal; empty if unknown."""
    until = time.monotonic() + REASON_SECONDS
    try:
        while not others.join(timeout=max(0.0, until - time.monotonic()), grace_period=0.1):
            if time.monotonic() > until:
                return ""
    except mp.ProcessRaisedException as error:
        return (f"process {error.error_index + 1} of this training failed: "
                f"{str(error).strip().splitlines()[-1]}")
    except mp.ProcessExitedException as error:
        how = (f"was ended by {error.signal_name}" if error.signal_name
               else f"ended with status {error.exit_code}")
        memory = (", as a system does that has no memory left" if error.signal_name == "SIGKILL"
                  else "")
        return f"process {error.error_index + 1} of this training {how}{memory}"
    return ""
