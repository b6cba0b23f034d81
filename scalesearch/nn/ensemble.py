"""Ensembles: several models of one vocabulary that translate as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class MemberStates:
    """Memories or caches of the members, to be selected from and grouped together."""

    members: list[Any]

    def select(self, *args: Any) -> MemberStates:
        """Those of some rows; caches are changed in place."""
        return MemberStates([part.select(*args) for part in self.members])

    def group_by_source(self, *args: Any) -> None:
        """Group the rows of every member's cache by source."""
        for part in self.members:
            part.group_by_source(*args)


class Ensemble(torch.nn.Module):
    """Several models of one vocabulary: each next token has the mean of their probabilities.

    It decodes wherever a single model does (:mod:`scalesearch.nn.decode`); it is not trained.
    """

    def __init__(self, members: list[Any]) -> None:
        super().__init__()
        self.members = torch.nn.ModuleList(members)

    def _call_members(self, call: Callable[..., Any], *given: MemberStates) -> list[Any]:
        return [call(member, *parts)
                for member, *parts in zip(self.members, *(each.members for each in given))]

    def encode(self, source: Tensor) -> MemberStates:
        """(batch, S) token ids to the memory of each member."""
        return MemberStates(self._call_members(lambda member: member.encode(source)))

    def new_cache(self) -> MemberStates:
        """An empty cache for each member."""
        return MemberStates(self._call_members(lambda member: member.new_cache()))

    def decode(self, target: Tensor, memory: MemberStates, cache: MemberStates) -> MemberStates:
        """States (batch, T, d) of each member, whose widths may differ."""
        return MemberStates(
            self._call_members(lambda member, *parts: member.decode(target, *parts), memory, cache))

    def logits(self, states: MemberStates) -> Tensor:
        """Logarithms (…, V) of the mean probability, in fp32 or better."""
        return self._mean(self._call_members(lambda member, part: member.logits(part), states))

    @staticmethod
    def _mean(logits: list[Tensor]) -> Tensor:
        total: Tensor | float = 0.0
        for one in logits:  # eight times as fast as from the logarithms, with no copy of them all
            total = total + one.softmax(-1, dtype=torch.promote_types(one.dtype, torch.float32))
        assert isinstance(total, Tensor), "an ensemble has members"
        # of none is the logarithm endless
        return (total / len(logits)).clamp_min(torch.finfo(total.dtype).tiny).log()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Teacher-forced logarithms (batch, T, V) of the mean probability."""
        return self._mean([member(source, target) for member in self.members])

    @contextmanager
    def cached_weights(self) -> Iterator[None]:
        """Context in which every member computes once what depends on its weights alone."""
        with ExitStack() as stack:
            for member in self.members:
                stack.enter_context(member.cached_weights())
            yield

    def set_attention(self, kernel: str) -> None:
        """Run the members' attention as ``fused`` or as ``products``."""
        self._call_members(lambda member: member.set_attention(kernel))

    @property
    def shares_sources(self) -> bool:
        """True if rows of one source can share the memory of every member."""
        return all(self._call_members(lambda member: member.shares_sources))

    @property
    def max_length(self) -> int | None:
        """The most positions of a sentence, by the member with fewest; None if unlimited."""
        return min((most
                    for most in self._call_members(lambda member: member.max_length)
                    if most is not None), default=None)

    def max_target_length(self, source_length: int) -> int | None:
        """The most target positions after ``source_length`` source tokens, by the member with fewest."""
        rooms = self._call_members(lambda member: member.max_target_length(source_length))
        return min((room for room in rooms if room is not None), default=None)
