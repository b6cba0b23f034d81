"""Pieces of a network that are listed apart: sections, and the halves of a stack; and which answers each is made from.

What a feed-forward network adds to a stack does not depend on the mixer beside it, nor the other way round: their
weights, their ties and their work are apart. So each half is listed beside a plain stand-in for the other, and the
halves are joined on the answers that both depend on. A stack of 1,000 mixers and 1,000 feed-forward networks has
2,000 structures to cost then, not a million.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.grid import TooMany
from scalesearch.feasible.identity import rows_numbered
from scalesearch.space import ParamValues, UnbuildableError
from scalesearch.space.assembly.architecture import build_section
from scalesearch.space.parameters.param_values import ParameterSpace
from scalesearch.space.schema.bound_tree import ParameterNode
from scalesearch.space.syntax.composite_domains import iter_expressions
from scalesearch.space.syntax.expressions import keys_of

Answered = Mapping[str, Any]
# The plainest mixer: attention of one head of one feature.
_LIKE = {"mixer": "attention", "local": "none", "heads": 1, "head_dim": 1, "score_heads": 1, "head_scaling": "none",
         "key_value_heads": "off", "gate": "none", "mask": "none", "lift": "none", "cross": "attention",
         "relative_positions": False, "rotary": False, "residual_scores": "none", "cross_gate": "none",
         "projections": "matrices", "projection_bias": True, "parallel_heads": "off", "pg": "none"}
_SLOTS = {"encoder": ("attention",), "decoder": ("self", "cross")}


# -- pieces


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
        return build_section(self.alone(answers), self.section)

    def build_rest(self, answers: Answered) -> Any:
        """What the stand-in for mixers costs alone: to be taken off what the half ``ffn`` costs."""
        return build_section(ChainMap(_without_ffn(self.section), self.alone(answers)), self.section)  # type: ignore[arg-type]


def _without_ffn(stack: str) -> dict[str, Any]:
    """Answers of a stack that has no feed-forward network."""
    return {f"{stack}.ffn": "none", f"share.{stack}.ffn": "own", "tensor_chain.ffn": "off", "low_rank.ffn": "off",
            "matrices.ffn": "dense",
            f"{stack}.interleaved": False}


def _plainest(stack: str) -> dict[str, Any]:
    """Answers of a stack with the plainest mixer."""
    plain = {f"{stack}.{name}": value for name, value in _LIKE.items()}
    plain |= {f"share.{stack}.{slot}": "own" for slot in _SLOTS[stack]}
    return {**plain, "tensor_chain.attention": "off", "low_rank.attention": "off", "matrices.attention": "dense",
            "matrices.out": "dense"}


@dataclass(frozen=True)
class Part:
    """The candidates of one section (or of the rest), one row each.

    Attributes:
        codes: (rows, parameters) index of each answer, UNASKED where a parameter does not come up.
        parameters: their names.
        costs: (rows, selectors).
        good: whether the section can be built and no constraint of its own is violated.
        identity: rows with one number are one network there.
    """

    codes: NDArray[np.int32]
    parameters: tuple[str, ...]
    costs: NDArray[np.int64]
    good: NDArray[np.bool_]
    identity: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.good)


def answers_numbered(one: Part, other: Part) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the rows of two parts, equal where the answers to the parameters that both have are."""
    common = [parameter for parameter in one.parameters if parameter in other.parameters]
    columns = (np.concatenate([part.codes[:, part.parameters.index(parameter)].astype(np.int64)
                               for part in (one, other)]) for parameter in common)
    numbers = rows_numbered(columns, len(one) + len(other))
    return numbers[: len(one)], numbers[len(one) :]


def joined(one: Part, other: Part, most: int) -> Part:
    """Every row of ``one`` with every row of ``other`` that has the same answers to the parameters of both.

    Raises:
        TooMany: there are more than ``most``.
    """
    left, right = _matches(*answers_numbered(one, other), most)
    fresh = [column for column, parameter in enumerate(other.parameters) if parameter not in one.parameters]
    codes = np.concatenate([one.codes[left], other.codes[right][:, fresh]], 1)
    parameters = (*one.parameters, *(other.parameters[column] for column in fresh))
    good = one.good[left] & other.good[right]
    identity = rows_numbered([one.identity[left], other.identity[right]], len(left))
    costs = one.costs[left] + other.costs[right]
    return Part(codes, parameters, costs, good, np.where(good, identity, -1))


def _matches(mine: NDArray[np.int64], theirs: NDArray[np.int64], most: int) -> tuple[Any, Any]:
    """Places in ``mine`` and in ``theirs`` of all pairs of equal numbers."""
    order = np.argsort(theirs, kind="stable")
    starts, ends = np.searchsorted(theirs[order], mine, "left"), np.searchsorted(theirs[order], mine, "right")
    times = ends - starts
    if times.sum() > most:
        raise TooMany(f"more than {most:,} combinations of answers depend on each other")
    left = np.repeat(np.arange(len(mine)), times)
    within = np.arange(len(left)) - np.repeat(np.cumsum(times) - times, times)
    return left, order[np.repeat(starts, times) + within]


# -- which answers they are made from: those that building them reads


class Missed(Exception):
    """Building read an answer that was not given, though the space has one."""

    def __init__(self, piece: object, key: str) -> None:
        super().__init__(f"{piece} is made from {key} as well")
        self.piece, self.key = piece, key


class Given(Mapping[str, Any]):
    """Some of a candidate's answers; reading another that the space has raises Missed, not KeyError.

    Args:
        keys: those that are given. known: all of the space's.
        piece: what is built, for Missed to name.
    """

    def __init__(self, answers: Answered, keys: Container[str], known: Container[str], piece: object) -> None:
        self.answers, self.keys_given, self.known, self.piece = answers, keys, known, piece

    def __getitem__(self, key: str) -> Any:
        if key not in self.keys_given and key in self.known:
            raise Missed(self.piece, key)
        return self.answers[key]

    def __iter__(self) -> Iterator[str]:
        raise TypeError("answers are read key by key here, so that it is known which count")

    def __len__(self) -> int:
        return len(self.answers)


def keys_read(piece: Piece, samples: Iterable[ParamValues], known: Container[str]) -> set[str]:
    """The keys that building ``piece`` reads of any of the ``samples``; of other sheets it may read more."""
    keys: set[str] = set()
    for answers in samples:
        while True:
            try:
                piece.build(Given(answers, keys, known, piece))
            except Missed as missed:
                keys.add(missed.key)
                continue
            except UnbuildableError:
                pass
            break
    return keys


def leaves_behind(form: ParameterSpace, keys: Iterable[str]) -> list[ParameterNode]:
    """The leaves that ``keys`` are the answers of, and all whose values those depend on, or depths that they fit."""
    leaves: dict[str, ParameterNode] = {}
    queue = list(keys)
    while queue:
        for leaf in form.nodes_by_key.get(queue.pop(), ()):
            if leaf.path not in leaves:
                leaves[leaf.path] = leaf
                queue += [key for expr in iter_expressions(leaf.domain) for key in keys_of(expr)]
                queue += [group for group, _ in leaf.guards]
                queue += [leaf.field.depth_key] if leaf.field.depth_key else []
    return list(leaves.values())


def several(needs: Iterable[frozenset[str]]) -> set[str]:
    """The parameters that are in more than one of ``needs``."""
    counts = Counter(parameter for asked in needs for parameter in asked)
    return {parameter for parameter, count in counts.items() if count > 1}
