"""Pieces of a network that are listed apart: sections, and the halves of a stack; and which answers each is made from.

What a feed-forward network adds to a stack does not depend on the mixer beside it, nor the other
way round: their weights, their ties and their work are apart. So each half is listed beside a plain
stand-in for the other, and the halves are joined on the answers that both depend on. A stack of
1,000 mixers and 1,000 feed-forward networks has 2,000 structures to cost then, not a million.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalesearch.feasible.enumeration import TooManyCandidatesError
from scalesearch.feasible.identity import number_rows
from scalesearch.space import ParamValues, UnbuildableError
from scalesearch.space.assembly.architecture import build_section
from scalesearch.space.parameters.param_values import ParameterSpace
from scalesearch.space.schema.bound_tree import ParameterNode
from scalesearch.space.syntax.composite_domains import iter_expressions
from scalesearch.space.syntax.expressions import keys_of

Config = Mapping[str, Any]
# The plainest mixer: attention of one head of one feature.
_PLAIN_MIXER_CONFIG = {"mixer": "attention", "local": "none", "heads": 1, "head_dim": 1,
                       "score_heads": 1, "head_scaling": "none", "key_value_heads": "off",
                       "gate": "none", "mask": "none", "lift": "none", "cross": "attention",
                       "relative_positions": False, "rotary": False, "residual_scores": "none",
                       "cross_gate": "none", "projections": "matrices", "projection_bias": True,
                       "parallel_heads": "off", "pg": "none"}
_ATTENTION_SLOTS = {"encoder": ("attention",), "decoder": ("self", "cross")}


# -- pieces


@dataclass(frozen=True)
class NetworkPiece:
    """What is listed at once: a section, or one half of a stack, ``mixers`` (and the rest) or ``ffn``."""

    section: str
    half: str = ""

    def with_plain_other_half(self, config: Config) -> Config:
        """``config`` with the plainest other half."""
        if not self.half:
            return config
        changes = _without_ffn(self.section) if self.half == "mixers" else _plainest(self.section)
        return ChainMap(changes, config)  # type: ignore[arg-type]  # which is only read

    def build(self, config: Config) -> Any:
        """The section that the answers describe, as far as it is this piece."""
        return build_section(self.with_plain_other_half(config), self.section)

    def build_placeholder(self, config: Config) -> Any:
        """What the stand-in for mixers costs alone: to be taken off what the half ``ffn`` costs."""
        return build_section(ChainMap(_without_ffn(self.section), self.with_plain_other_half(config)), self.section)  # type: ignore[arg-type]


def _without_ffn(stack: str) -> dict[str, Any]:
    """Answers of a stack that has no feed-forward network."""
    return {f"{stack}.ffn": "none", f"share.{stack}.ffn": "own", "tensor_chain.ffn": "off",
            "low_rank.ffn": "off", "matrices.ffn": "dense", f"{stack}.interleaved": False}


def _plainest(stack: str) -> dict[str, Any]:
    """Answers of a stack with the plainest mixer."""
    plain = {f"{stack}.{name}": value for name, value in _PLAIN_MIXER_CONFIG.items()}
    plain |= {f"share.{stack}.{slot}": "own" for slot in _ATTENTION_SLOTS[stack]}
    return {**plain, "tensor_chain.attention": "off", "low_rank.attention": "off",
            "matrices.attention": "dense", "matrices.out": "dense"}


@dataclass(frozen=True)
class SectionCandidates:
    """The candidates of one section (or of the rest), one row each.

    Attributes:
        value_indices: (rows, parameters) index of each answer, UNASKED where a parameter does not
            come up.
        parameters: their names.
        costs: (rows, selectors).
        is_valid: whether the section can be built and no constraint of its own is violated.
        network_numbers: rows with one number are one network there.
    """

    value_indices: NDArray[np.int32]
    parameters: tuple[str, ...]
    costs: NDArray[np.int64]
    is_valid: NDArray[np.bool_]
    network_numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.is_valid)


def number_shared_values(left: SectionCandidates,
                         right: SectionCandidates) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the rows of two parts, equal where the answers to the parameters that both have are."""
    common = [parameter for parameter in left.parameters if parameter in right.parameters]
    columns = (
        np.concatenate([part.value_indices[:, part.parameters.index(parameter)].astype(np.int64)
                        for part in (left, right)]) for parameter in common)
    numbers = number_rows(columns, len(left) + len(right))
    return numbers[: len(left)], numbers[len(left) :]


def join_parts(left: SectionCandidates, right: SectionCandidates,
               max_rows: int) -> SectionCandidates:
    """Every row of ``left`` with every row of ``right`` that has the same answers to the parameters of both.

    Raises:
        TooMany: there are more than ``max_rows``.
    """
    left_rows, right_rows = _equal_pairs(*number_shared_values(left, right), max_rows)
    fresh = [column
             for column, parameter in enumerate(right.parameters)
             if parameter not in left.parameters]
    codes = np.concatenate([left.value_indices[left_rows], right.value_indices[right_rows][:, fresh]], 1)
    parameters = (*left.parameters, *(right.parameters[column] for column in fresh))
    good = left.is_valid[left_rows] & right.is_valid[right_rows]
    networks = [left.network_numbers[left_rows], right.network_numbers[right_rows]]
    identity = number_rows(networks, len(left_rows))
    costs = left.costs[left_rows] + right.costs[right_rows]
    return SectionCandidates(codes, parameters, costs, good, np.where(good, identity, -1))


def _equal_pairs(
        mine: NDArray[np.int64], theirs: NDArray[np.int64], max_rows: int) -> tuple[Any, Any]:
    """Places in ``mine`` and in ``theirs`` of all pairs of equal numbers."""
    order = np.argsort(theirs, kind="stable")
    starts = np.searchsorted(theirs[order], mine, "left")
    ends = np.searchsorted(theirs[order], mine, "right")
    times = ends - starts
    if times.sum() > max_rows:
        raise TooManyCandidatesError(f"more than {max_rows:,} combinations of answers depend on "
                                     "each other")
    left = np.repeat(np.arange(len(mine)), times)
    within = np.arange(len(left)) - np.repeat(np.cumsum(times) - times, times)
    return left, order[np.repeat(starts, times) + within]


# -- which answers they are made from: those that building them reads


class UndeclaredReadError(Exception):
    """Building read an answer that was not given, though the space has one."""

    def __init__(self, piece: object, key: str) -> None:
        super().__init__(f"{piece} is made from {key} as well")
        self.piece = piece
        self.key = key


class TracingConfig(Mapping[str, Any]):
    """Some of a candidate's answers; reading another that the space has raises Missed, not KeyError.

    Args:
        keys: those that are given. known: all of the space's.
        piece: what is built, for Missed to name.
    """

    def __init__(self, config: Config, keys: Container[str], space_keys: Container[str],
                 piece: object) -> None:
        self.answers = config
        self.keys_given = keys
        self.known = space_keys
        self.piece = piece

    def __getitem__(self, key: str) -> Any:
        if key not in self.keys_given and key in self.known:
            raise UndeclaredReadError(self.piece, key)
        return self.answers[key]

    def __iter__(self) -> Iterator[str]:
        raise TypeError("answers are read key by key here, so that it is known which count")

    def __len__(self) -> int:
        return len(self.answers)


def trace_keys_read(piece: NetworkPiece, samples: Iterable[ParamValues],
                    space_keys: Container[str]) -> set[str]:
    """The keys that building ``piece`` reads of any of the ``samples``; of other sheets it may read more."""
    keys: set[str] = set()
    for answers in samples:
        while True:
            try:
                piece.build(TracingConfig(answers, keys, space_keys, piece))
            except UndeclaredReadError as missed:
                keys.add(missed.key)
                continue
            except UnbuildableError:
                pass
            break
    return keys


def parameters_behind(space_parameters: ParameterSpace, keys: Iterable[str]) -> list[ParameterNode]:
    """The leaves that ``keys`` are the answers of, and all whose values those depend on, or depths that they fit."""
    leaves: dict[str, ParameterNode] = {}
    queue = list(keys)
    while queue:
        for leaf in space_parameters.nodes_by_key.get(queue.pop(), ()):
            if leaf.path not in leaves:
                leaves[leaf.path] = leaf
                queue += [key for expr in iter_expressions(leaf.domain) for key in keys_of(expr)]
                queue += [group for group, _ in leaf.guards]
                queue += [leaf.field.depth_key] if leaf.field.depth_key else []
    return list(leaves.values())


def shared_parameters(parameters_by_piece: Iterable[frozenset[str]]) -> set[str]:
    """The parameters that are in more than one of ``parameters_by_piece``."""
    counts = Counter(parameter for asked in parameters_by_piece for parameter in asked)
    return {parameter for parameter, count in counts.items() if count > 1}
