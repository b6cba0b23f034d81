"""The processes of one training: started here or by somebody else, talking to each other, ending together.

One process leads: it alone reads data, decides, validates and writes. The others follow: they wait for a message,
do their share of an update, and wait for the next. So nothing that only one of them can know (a signal, a clock, a
full disk) can lead them apart.
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

WAIT = timedelta(days=7)  # a follower waits while the leader decodes; who dies is noticed at once, by its connections
START_SECONDS = 300.0  # until every process has loaded PyTorch, on a busy machine
REASON_SECONDS = 10.0  # for a process that is lost to leave its traceback
END_SECONDS = 10.0
END = ("end", None)
_KEPT_FROM_FOLLOWERS = (signal.SIGINT, signal.SIGTERM)


class ProcessLost(RuntimeError):
    """Another process of this training ended or cannot be reached; the message says what it died of."""


class Team:
    """The processes of one training, as one of them sees them; made by all of them at once.

    Messages are Python values and go through gloo, over the hosts; gradients go through the default group.

    Attributes:
        rank: 0 leads. size: how many there are.
    """

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        with _noticing():
            self._hosts = dist.new_group(backend="gloo", timeout=WAIT)

    def tell(self, messages: list[Any]) -> None:
        """The leader's: one message for each process, its own (unused) first."""
        with _noticing():
            dist.scatter_object_list([None], messages, src=0, group=self._hosts)

    def tell_all(self, message: Any) -> None:
        """The leader's: the same message for all."""
        self.tell([message] * self.size)

    def hear(self) -> Any:
        """A follower's next message; waits for it."""
        heard: list[Any] = [None]
        with _noticing():
            dist.scatter_object_list(heard, None, src=0, group=self._hosts)
        return heard[0]

    def gather(self, value: Any) -> list[Any]:
        """Everyone's ``value``, by rank, at the leader; an empty list elsewhere."""
        found: list[Any] | None = [None] * self.size if self.rank == 0 else None
        with _noticing():
            dist.gather_object(value, found, dst=0, group=self._hosts)
        return found or []

    def agree(self, numbers: Tensor) -> Tensor:
        """The sum of everyone's ``numbers``, a tensor on the host, in its place."""
        with _noticing():
            dist.all_reduce(numbers, group=self._hosts)
        return numbers

    def reduce(self, work: Callable[[], object]) -> None:
        """Does ``work``, which reduces tensors over the default group."""
        with _noticing():
            work()


@contextmanager
def _noticing() -> Iterator[None]:
    """A stretch that others take part in; raises ProcessLost where one of them does not."""
    try:
        yield
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise ProcessLost(f"another process of this training cannot be reached: {first}") from error


@contextmanager
def local_team(size: int, cuda: bool, threads: int | None, follow: Callable[[Team], object]) -> Iterator[Team]:
    """``size`` processes on this machine, of which this one leads; the others do ``follow`` and are gone afterwards.

    Args:
        cuda: gradients go through NCCL, and each process has a GPU of its own.
        threads: of each process; None shares out those of this one.
        follow: a function of a module, since the others are fresh processes.

    Raises:
        UserError: there are not as many GPUs.
        ProcessLost: one of the others ended; with its reason.
    """
    if cuda and torch.cuda.device_count() < size:
        raise UserError(f"processes: {size} of them need a GPU each, and PyTorch finds {torch.cuda.device_count()}; "
                        "ask for fewer, or for device cpu")
    before = torch.get_num_threads()
    each = threads or max(1, before // size)
    store = dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
    others = _start(size, store.port, cuda, each, follow)
    try:
        torch.set_num_threads(each)
        _await_start(store, size, others)
        with _joined(store, 0, size, cuda) as team:
            yield team
            team.tell_all(END)
            _leave(others)
    except ProcessLost as error:
        raise ProcessLost(_reason(others) or str(error)) from None
    finally:
        torch.set_num_threads(before)
        for process in others.processes:
            process.kill()  # nothing is lost: only the leader keeps and writes anything
            process.join()


def _start(size: int, port: int, cuda: bool, threads: int, follow: Callable[[Team], object]) -> mp.ProcessContext:
    """The other processes. Signals are blocked in them, as a mask is inherited: the leader alone answers to them."""
    ensure_running()  # it unblocks them when it starts, so not in the stretch below
    signal.pthread_sigmask(signal.SIG_BLOCK, _KEPT_FROM_FOLLOWERS)
    try:
        return mp.start_processes(_other, (size, port, cuda, threads, follow), size - 1, join=False, daemon=True,
                                  start_method="spawn")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _KEPT_FROM_FOLLOWERS)


def _other(index: int, size: int, port: int, cuda: bool, threads: int, follow: Callable[[Team], object]) -> None:
    """What the process of rank ``index + 1`` does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _KEPT_FROM_FOLLOWERS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    store = dist.TCPStore("127.0.0.1", port, size, is_master=False)
    store.set(f"here/{index + 1}", "")
    # The leader knows more of a process that is lost.
    with suppress(ProcessLost), _joined(store, index + 1, size, cuda) as team:
        follow(team)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "only started processes come here"
    parent.join()
    os._exit(1)


def _await_start(store: dist.TCPStore, size: int, others: mp.ProcessContext) -> None:
    """Waits for the others, which may die before anyone is connected to them. Raises ProcessLost."""
    until = time.monotonic() + START_SECONDS
    while not store.check([f"here/{rank}" for rank in range(1, size)]):
        if any(process.exitcode is not None for process in others.processes) or time.monotonic() > until:
            raise ProcessLost(f"not all of {size} processes could be started within {START_SECONDS:g} s")
        time.sleep(0.02)


@contextmanager
def _joined(store: dist.TCPStore, rank: int, size: int, cuda: bool) -> Iterator[Team]:
    """The team that meets at ``store``; connections are closed at the end, which tells whoever still waits."""
    if cuda:
        torch.cuda.set_device(rank)
    with _noticing():
        dist.init_process_group("nccl" if cuda else "gloo", store=store, rank=rank, world_size=size, timeout=WAIT)
    try:
        yield Team()
    finally:
        dist.destroy_process_group()


def _leave(others: mp.ProcessContext) -> None:
    """Waits a while for processes that have been told to end."""
    until = time.monotonic() + END_SECONDS
    for process in others.processes:
        process.join(max(0.0, until - time.monotonic()))


def _reason(others: mp.ProcessContext) -> str:
    """What a process died of: its error, or the signal that ended it; empty if that cannot be known."""
    until = time.monotonic() + REASON_SECONDS
    try:
        while not others.join(timeout=max(0.0, until - time.monotonic()), grace_period=0.1):
            if time.monotonic() > until:
                return ""
    except mp.ProcessRaisedException as error:
        return f"process {error.error_index + 1} of this training failed: {str(error).strip().splitlines()[-1]}"
    except mp.ProcessExitedException as error:
        how = f"was ended by {error.signal_name}" if error.signal_name else f"ended with status {error.exit_code}"
        memory = ", as a system does that has no memory left" if error.signal_name == "SIGKILL" else ""
        return f"process {error.error_index + 1} of this training {how}{memory}"
    return ""
