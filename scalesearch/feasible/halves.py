"""A stack listed in two halves: its attention with everything else, and its feed-forward networks.

What a feed-forward network adds to a stack does not depend on the attention beside it, nor the other way round: their
weights, their ties and their work are apart. So each half is listed beside a plain stand-in for the other, and the
halves are joined on the answers that both depend on. A stack of 1,000 attentions and 1,000 feed-forward networks has
2,000 structures to cost then, not a million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.grid import TooMany
from scalesearch.feasible.identity import rows_numbered

Answered = Mapping[str, Any]
_LIKE = {"heads": 1, "head_dim": 1, "score_heads": 1, "head_scaling": "none", "key_value_heads": "off", "gate": "none",
         "relative_positions": False, "residual_scores": "none", "cross_gate": "none", "projections": "matrices",
         "pg": "none"}
_SLOTS = {"encoder": ("attention",), "decoder": ("self", "cross")}


@dataclass(frozen=True)
class Half:
    """One half of a stack: ``own`` says which keys are its alone, ``alone`` puts a stand-in in place of the other."""

    stack: str
    fed: bool  # the feed-forward networks; otherwise attention and the rest

    def own(self, key: str) -> bool:
        """Whether nothing but this half is made from ``key``."""
        ours = _feed_forward if self.fed else _attention
        return ours(self.stack, key)

    def alone(self, answers: Answered) -> dict[str, Any]:
        """``answers`` with the plainest other half."""
        return _plainest(self.stack, answers) if self.fed else without_ffn(self.stack, answers)


def without_ffn(stack: str, answers: Answered) -> dict[str, Any]:
    """``answers`` of a stack that has no feed-forward network."""
    kept = {key: value for key, value in answers.items() if not key.startswith(f"{stack}.ffn.")}
    none = {f"{stack}.ffn": "none", f"share.{stack}.ffn": "own", "tensor_chain.ffn": "off", "low_rank.ffn": "off"}
    return kept | none | {f"{stack}.interleaved": False}


def _plainest(stack: str, answers: Answered) -> dict[str, Any]:
    """``answers`` of a stack with one attention head of one feature."""
    plain = {f"{stack}.{name}": value for name, value in _LIKE.items()}
    plain |= {f"share.{stack}.{slot}": "own" for slot in _SLOTS[stack]}
    return {**answers, **plain, "tensor_chain.attention": "off", "low_rank.attention": "off"}


def _feed_forward(stack: str, key: str) -> bool:
    named = (f"{stack}.ffn", f"{stack}.interleaved", f"share.{stack}.ffn", "tensor_chain.ffn", "low_rank.ffn")
    return key in named or key.startswith(f"{stack}.ffn.")


def _attention(stack: str, key: str) -> bool:
    shares = tuple(f"share.{stack}.{slot}" for slot in _SLOTS[stack])
    other = key.startswith(("encoder.", "share.encoder.")) and stack == "decoder"  # what a decoder borrows is attention
    names = tuple(f"{stack}.{name}" for name in (*_LIKE, "relative_clip"))
    return other or key in (*shares, *names, "tensor_chain.attention", "low_rank.attention") or key.startswith(
        f"{stack}.pg.")


def joined(one: Any, other: Any, most: int, make: Callable[..., Any]) -> Any:
    """Every row of ``one`` with every row of ``other`` that has the same answers to the questions of both.

    Args:
        one, other: parts (see :class:`scalesearch.feasible.sections.Part`).
        most: rows that are listed.
        make: makes a part from codes, questions, costs, good and identity.

    Raises:
        TooMany: there are more.
    """
    common = [question for question in one.questions if question in other.questions]
    left, right = _matches(_columns(one, common), _columns(other, common), most)
    fresh = [column for column, question in enumerate(other.questions) if question not in common]
    codes = np.concatenate([one.codes[left], other.codes[right][:, fresh]], 1)
    questions = (*one.questions, *(other.questions[column] for column in fresh))
    good = one.good[left] & other.good[right]
    identity = rows_numbered([one.identity[left], other.identity[right]], len(left))
    return make(codes, questions, one.costs[left] + other.costs[right], good, np.where(good, identity, -1))


def _columns(part: Any, questions: Iterable[str]) -> list[NDArray[np.int64]]:
    return [part.codes[:, part.questions.index(question)].astype(np.int64) for question in questions]


def _matches(one: list[NDArray[np.int64]], other: list[NDArray[np.int64]], most: int) -> tuple[Any, Any]:
    """Places in ``one`` and in ``other`` of all pairs of rows that are equal in every column."""
    rows = len(one[0])
    both = rows_numbered([np.concatenate(pair) for pair in zip(one, other)], rows + len(other[0]))
    mine, theirs = both[:rows], both[rows:]
    order = np.argsort(theirs, kind="stable")
    starts, ends = np.searchsorted(theirs[order], mine, "left"), np.searchsorted(theirs[order], mine, "right")
    times = ends - starts
    if times.sum() > most:
        raise TooMany(f"more than {most:,} combinations of answers hang together")
    left = np.repeat(np.arange(rows), times)
    within = np.arange(len(left)) - np.repeat(np.cumsum(times) - times, times)
    return left, order[np.repeat(starts, times) + within]
