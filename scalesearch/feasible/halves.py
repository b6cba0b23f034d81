"""A stack listed in two halves: its mixers with everything else, and its feed-forward networks.

What a feed-forward network adds to a stack does not depend on the mixer beside it, nor the other way round: their
weights, their ties and their work are apart. So each half is listed beside a plain stand-in for the other, and the
halves are joined on the answers that both depend on. A stack of 1,000 mixers and 1,000 feed-forward networks has
2,000 structures to cost then, not a million.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.grid import TooMany
from scalesearch.feasible.identity import rows_numbered
from scalesearch.space.assembly.architecture import section

Answered = Mapping[str, Any]
# The plainest mixer: attention of one head of one feature.
_LIKE = {"mixer": "attention", "heads": 1, "head_dim": 1, "score_heads": 1, "head_scaling": "none",
         "key_value_heads": "off", "gate": "none", "relative_positions": False, "residual_scores": "none",
         "cross_gate": "none", "projections": "matrices", "pg": "none"}
_SLOTS = {"encoder": ("attention",), "decoder": ("self", "cross")}


@dataclass(frozen=True)
class Piece:
    """What is listed at once: a section, or one half of a stack, ``mixers`` (and the rest) or ``ffn``."""

    section: str
    half: str = ""

    def alone(self, answers: Answered) -> Answered:
        """``answers`` with the plainest other half."""
        if not self.half:
            return answers
        changes = _without_ffn(self.section) if self.half == "mixers" else _plainest(self.section)
        return ChainMap(changes, answers)  # type: ignore[arg-type]  # which is only read

    def build(self, answers: Answered) -> Any:
        """The section that the answers describe, as far as it is this piece."""
        return section(self.alone(answers), self.section)

    def build_rest(self, answers: Answered) -> Any:
        """What the stand-in for mixers costs alone: to be taken off what the half ``ffn`` costs."""
        return section(ChainMap(_without_ffn(self.section), self.alone(answers)), self.section)  # type: ignore[arg-type]


def _without_ffn(stack: str) -> dict[str, Any]:
    """Answers of a stack that has no feed-forward network."""
    none = {f"{stack}.ffn": "none", f"share.{stack}.ffn": "own", "tensor_chain.ffn": "off", "low_rank.ffn": "off"}
    return none | {f"{stack}.interleaved": False}


def _plainest(stack: str) -> dict[str, Any]:
    """Answers of a stack with the plainest mixer."""
    plain = {f"{stack}.{name}": value for name, value in _LIKE.items()}
    plain |= {f"share.{stack}.{slot}": "own" for slot in _SLOTS[stack]}
    return {**plain, "tensor_chain.attention": "off", "low_rank.attention": "off"}


def joined(one: Any, other: Any, most: int, make: Callable[..., Any]) -> Any:
    """Every row of ``one`` with every row of ``other`` that has the same answers to the parameters of both.

    Args:
        one, other: parts (see :class:`scalesearch.feasible.sections.Part`).
        most: rows that are listed.
        make: makes a part from codes, parameters, costs, good and identity.

    Raises:
        TooMany: there are more.
    """
    common = [parameter for parameter in one.parameters if parameter in other.parameters]
    left, right = _matches(_columns(one, common), _columns(other, common), most)
    fresh = [column for column, parameter in enumerate(other.parameters) if parameter not in common]
    codes = np.concatenate([one.codes[left], other.codes[right][:, fresh]], 1)
    parameters = (*one.parameters, *(other.parameters[column] for column in fresh))
    good = one.good[left] & other.good[right]
    identity = rows_numbered([one.identity[left], other.identity[right]], len(left))
    return make(codes, parameters, one.costs[left] + other.costs[right], good, np.where(good, identity, -1))


def _columns(part: Any, parameters: Iterable[str]) -> list[NDArray[np.int64]]:
    """The answers of ``part`` to ``parameters``; where there are none, all rows agree."""
    columns = [part.codes[:, part.parameters.index(parameter)].astype(np.int64) for parameter in parameters]
    return columns or [np.zeros(len(part), np.int64)]


def _matches(one: list[NDArray[np.int64]], other: list[NDArray[np.int64]], most: int) -> tuple[Any, Any]:
    """Places in ``one`` and in ``other`` of all pairs of rows that are equal in every column."""
    rows = len(one[0])
    both = rows_numbered([np.concatenate(pair) for pair in zip(one, other)], rows + len(other[0]))
    mine, theirs = both[:rows], both[rows:]
    order = np.argsort(theirs, kind="stable")
    starts, ends = np.searchsorted(theirs[order], mine, "left"), np.searchsorted(theirs[order], mine, "right")
    times = ends - starts
    if times.sum() > most:
        raise TooMany(f"more than {most:,} combinations of answers depend on each other")
    left = np.repeat(np.arange(rows), times)
    within = np.arange(len(left)) - np.repeat(np.cumsum(times) - times, times)
    return left, order[np.repeat(starts, times) + within]
