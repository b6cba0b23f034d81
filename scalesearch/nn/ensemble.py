"""Ensembles of models with the same vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class MemberStates:
    """Memories, caches or states of the members."""

    members: list[Any]

    def select(self, *args: Any) -> MemberStates:
        """Select rows of each member; caches are changed in place."""
        return MemberStates([part.select(*args) for part in self.members])

    def group_by_source(self, *args: Any) -> None:
        """Group the rows of the cache of each member by source."""
        for part in self.members:
            part.group_by_source(*args)


class Ensemble(torch.nn.Module):
    """An ensemble: the probability of the next token is the mean over its members.

    It supports the searches of a single model (:mod:`scalesearch.nn.decode`), but not training.
    """

    def __init__(self, members: list[Any]) -> None:
        super().__init__()
        self.members = torch.nn.ModuleList(members)

    def _call_members(self, call: Callable[..., Any], *states: MemberStates) -> list[Any]:
        return [call(member, *parts)
                for member, *parts in zip(self.members, *(state.members for state in states))]

    def encode(self, source: Tensor) -> MemberStates:
        """Encode token ids (batch, S) with each member."""
        return MemberStates(self._call_members(lambda member: member.encode(source)))

    def new_cache(self) -> MemberStates:
        """Return an empty cache per member."""
        return MemberStates(self._call_members(lambda member: member.new_cache()))

    def decode(self, target: Tensor, memory: MemberStates, cache: MemberStates) -> MemberStates:
        """Return the states (batch, T, d) of each member; d may differ."""
        return MemberStates(
            self._call_members(lambda member, *parts: member.decode(target, *parts), memory, cache))

    def logits(self, states: MemberStates) -> Tensor:
        """Return the log of the mean probabilities (…, V), in fp32 or fp64."""
        return self._mean(self._call_members(lambda member, part: member.logits(part), states))

    @staticmethod
    def _mean(logits: list[Tensor]) -> Tensor:
        total: Tensor | float = 0.0
        # A sum of probabilities is eight times as fast as logsumexp and needs no stacked copy.
        for scores in logits:
            dtype = torch.promote_types(scores.dtype, torch.float32)
            total = total + scores.softmax(-1, dtype=dtype)
        assert isinstance(total, Tensor), "an ensemble has members"
        # clamped: the log is finite
        return (total / len(logits)).clamp_min(torch.finfo(total.dtype).tiny).log()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the teacher-forced log of the mean probabilities (batch, T, V)."""
        return self._mean([member(source, target) for member in self.members])

    @contextmanager
    def cached_weights(self) -> Iterator[None]:
        """Context in which each member caches results that depend on weights only."""
        with ExitStack() as stack:
            for member in self.members:
                stack.enter_context(member.cached_weights())
            yield

    def set_attention(self, kernel: str) -> None:
        """Set the attention kernel of each member: ``fused`` or ``products``."""
        self._call_members(lambda member: member.set_attention(kernel))

    @property
    def shares_sources(self) -> bool:
        """Whether rows of the same source can share the memory in every member."""
        return all(self._call_members(lambda member: member.shares_sources))

    @property
    def max_length(self) -> int | None:
        """Smallest limit of positions of the members; None if unlimited."""
        limits = self._call_members(lambda member: member.max_length)
        return min((limit for limit in limits if limit is not None), default=None)

    def max_target_length(self, source_length: int) -> int | None:
        """Return the smallest limit of target positions of the members; None if unlimited."""
        limits = self._call_members(lambda member: member.max_target_length(source_length))
        return min((limit for limit in limits if limit is not None), default=None)
